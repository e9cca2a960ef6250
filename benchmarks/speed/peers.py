"""Defines the systems that ``gpu.py`` measures beside each other: our loop, SFTTrainer, GRetriever.

Each gets the same examples, base model, LoRA, Adam and clipping, and trains on the same batches.
Everything else is the system's own.
"""

from __future__ import annotations

import copy
import math
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import permutations
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from huggingface_hub import constants
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch_geometric.data import Batch as PygBatch
from torch_geometric.data import Data
from torch_geometric.llm.models import LLM, GRetriever
from torch_geometric.llm.models import llm as pyg_llm
from torch_geometric.nn.models import GAT
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from transformers.trainer_callback import PrinterCallback

from turngraph.benchmarks.speed.gpu_bench import clock
from turngraph.configs.schema import Config, LoraConfig
from turngraph.data.batches.collate import collate
from turngraph.data.batches.prefetch import Step, steps
from turngraph.data.examples import Example
from turngraph.model.base_model import cast_adapter_inputs
from turngraph.model.evidence_model import EvidenceModel
from turngraph.training.optimizer import make_optimizer

LORA = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=("q_proj", "v_proj"))
"""GRetriever fixes these settings, so all systems use them."""
VARLEN_ATTENTION = ("flex_attention", "flash_attention_2", "flash_attention_3")
"""Attention that skips pairs between packed examples and above the diagonal."""
GNN_WIDTH, GNN_LAYERS, GNN_HEADS = 1024, 4, 4  # as in PyG's own G-Retriever example


def lm_of(model: EvidenceModel) -> Any:
    """Return the LM of a text or graph model, with or without PEFT's LoRA."""
    assert model.lm is not None
    return model.lm


class Round(NamedTuple):
    """Seconds of one pass over some batches, and their mean loss."""

    seconds: float
    loss: float


class Given(NamedTuple):
    """A schedule for ``prefetch.steps``: batches in a fixed order, one per step."""

    batches: list[list[int]]

    def step(self, index: int) -> list[list[int]]:
        """Return the batches of one step, as indices of examples."""
        return [self.batches[index]]


class Ours:
    """Our training step: prefetched batch, loss, backward, clip, Adam.

    Args:
        model: text or graph model.
        config: learning rates, clipping and packing.
    """

    def __init__(self, model: EvidenceModel, config: Config) -> None:
        self.module, self.config = model, config
        self.optimizer = make_optimizer(model, config.training)

    def train(self, batches: Sequence[Sequence[Example]]) -> Round:
        """Take one optimizer step per batch."""
        indices = iter(range(sum(map(len, batches))))
        schedule = Given([[next(indices) for _ in batch] for batch in batches])
        examples = [example for batch in batches for example in batch]
        packed = self.config.training.packing
        self.module.train()
        began = clock(self.module.device)
        pinned = self.module.device.type == "cuda"
        taken = steps(examples, schedule, range(len(batches)), packed=packed, pinned=pinned)
        losses = [self.step(step) for step in taken]
        return Round(clock(self.module.device) - began, sum(losses) / len(losses))

    def step(self, step: Step) -> float:
        """Take one step, and return the mean loss of its batch."""
        (batch,) = step.batches
        loss = self.module(batch.to(self.module.device)).total / step.answer_tokens
        loss.backward()
        _clip_and_step(self.module, self.optimizer, self.config.training.max_grad_norm)
        return float(loss.detach())

    def num_tokens(self, example: Example) -> int:
        """Count prompt, evidence and answer; node states count as the tokens they replace."""
        return example.num_tokens


def _clip_and_step(module: nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> None:
    norm = clip_grad_norm_(module.parameters(), max_norm)
    if not torch.isfinite(norm):
        raise ValueError(f"gradient norm {float(norm)}")
    optimizer.step()
    optimizer.zero_grad()


class Trl:
    """TRL's SFTTrainer on our token ids and labels, in our batches and our Adam.

    Its own loop is timed from the start to the end of its epoch: data loader, collator, loss on
    the answer tokens, clipping, callbacks. Progress bar, logs and checkpoints, which would slow it
    down, are off; batches are padding-free if the attention skips pairs between examples.

    Args:
        model: a text model; its LM is trained.
        config: learning rates, clipping and attention.
        tokenizer: the tokenizer, for padding.
    """

    def __init__(
        self, model: EvidenceModel, config: Config, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL reports every run to its developers
        self.module, self.config, self.tokenizer = model, config, tokenizer
        cast_adapter_inputs(lm_of(model), True)  # as PEFT leaves them
        self.optimizer = make_optimizer(model, config.training)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)

    def train(self, batches: Sequence[Sequence[Example]]) -> Round:
        """Take one optimizer step per batch; all batches but the last have one size."""
        rows = [self.row(example) for batch in batches for example in batch]
        from datasets import Dataset  # only this system needs it and TRL
        from trl.trainer.sft_trainer import SFTTrainer

        timer = EpochTimer(self.module.device)
        with tempfile.TemporaryDirectory() as folder:
            trainer = SFTTrainer(
                model=lm_of(self.module),
                args=self.arguments(len(batches[0]), folder),
                train_dataset=Dataset.from_list(rows),
                processing_class=self.tokenizer,
                optimizers=(self.optimizer, self.scheduler),
                callbacks=[timer],
            )
            trainer.remove_callback(PrinterCallback)
            try:
                loss = trainer.train().training_loss
            finally:  # else the next round's trainer would wrap a wrapped model
                trainer.accelerator.unwrap_model(lm_of(self.module), keep_fp32_wrapper=False)
        return Round(timer.seconds, loss)

    def arguments(self, batch_size: int, folder: str) -> Any:
        """Return TRL's ``SFTConfig`` for a batch size."""
        from trl.trainer.sft_config import SFTConfig

        model = self.config.model
        return SFTConfig(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=batch_size,
            max_grad_norm=self.config.training.max_grad_norm,
            bf16=model.dtype == "bfloat16",
            use_cpu=self.module.device.type == "cpu",
            padding_free=batch_size > 1 and model.attn_implementation in VARLEN_ATTENTION,
            gradient_checkpointing=model.gradient_checkpointing,
            torch_compile=model.compile,
            train_sampling_strategy="sequential",  # batches are already grouped by length
            max_length=None,
            logging_strategy="no",
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )

    def num_tokens(self, example: Example) -> int:
        """Return the length of the row for TRL."""
        return len(self.row(example)["input_ids"])

    def row(self, example: Example) -> dict[str, list[int]]:
        """Return one example as TRL takes it, from the tensors that our loop trains on."""
        batch = collate([example], "right", with_target=True)
        return {"input_ids": batch.input_ids[0].tolist(), "labels": batch.labels[0].tolist()}


class EpochTimer(TrainerCallback):
    """Measures an epoch of transformers' trainer, from first batch to last step."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, math.nan

    def on_epoch_begin(self, *args: Any, **options: Any) -> None:
        """Start the clock."""
        self.seconds = -clock(self.device)

    def on_epoch_end(self, *args: Any, **options: Any) -> None:
        """Stop the clock."""
        self.seconds += clock(self.device)


class Pyg:
    """PyG's GRetriever around our base model, with its own prompt, graph token and loss.

    Its graph has the passages of E_t as nodes, connected if they mention the same entity, where its
    data sets have entities. Node features, which there a sentence encoder has computed before, are
    drawn at random in the width of its example, as speed does not depend on them. Text is ours:
    instruction and evidence as its context, interaction and question as its question.
    Three settings are patched, as it has no option for them: its context may exceed 512 tokens (it
    would cut the evidence), base model and tokenizer are passed in (it would load them by name),
    and on CPU it computes in the dtype of all systems (it would use float32).

    Args:
        base: a base model that no other system uses, on its device.
        tokenizer: the base model's tokenizer.
        config: learning rate, dtype and clipping.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        config: Config,
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.device = base.device
        llm = _pyg_llm(base, tokenizer, config.model.dtype)
        gnn = GAT(GNN_WIDTH, GNN_WIDTH, GNN_LAYERS, GNN_WIDTH, heads=GNN_HEADS)
        self.module = GRetriever(llm=llm, gnn=gnn, use_lora=True)
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(trained, config.training.learning_rate, fused=True)
        self.graphs: dict[int, tuple[Example, Data]] = {}

    def train(self, batches: Sequence[Sequence[Example]]) -> Round:
        """Take one optimizer step per batch, as in PyG's example."""
        graphs = [[self.graph(example) for example in batch] for batch in batches]
        self.module.train()
        began = clock(self.device)
        losses = [self.step(batch) for batch in graphs]
        return Round(clock(self.device) - began, sum(losses) / len(losses))

    def step(self, graphs: list[Data]) -> float:
        """Take one step, and return the loss of its batch."""
        batch = PygBatch.from_data_list(graphs)
        loss = self.module(
            batch.question, batch.x, batch.edge_index, batch.batch, batch.label, None, batch.desc
        )
        loss.backward()
        _clip_and_step(self.module, self.optimizer, self.config.training.max_grad_norm)
        return float(loss.detach())

    def graph(self, example: Example) -> Data:
        """Return an example as in PyG's data sets, built once."""
        if id(example) not in self.graphs:
            self.graphs[id(example)] = (
                example,
                self._graph(example),
            )  # kept, so that its id stays unique
        return self.graphs[id(example)][1]

    def _graph(self, example: Example) -> Data:
        def text(ids: Sequence[int]) -> str:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

        nodes = example.graph.node_ids.tolist()
        entities = [{e.id for e in item.evidence.entities} for item in example.evidence]
        pairs = permutations(range(len(entities)), 2)
        edges = [(i, j) for i, j in pairs if entities[i] & entities[j]]
        return Data(
            x=torch.randn(len(example.evidence), GNN_WIDTH),
            edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous(),
            desc=text(example.prefix_ids) + text(nodes),
            question=text(example.suffix_ids),
            label=text(example.target_ids),
        )

    @torch.no_grad()
    def num_tokens(self, example: Example) -> int:
        """Count what its attention mask covers: the tokens of its prompt and the graph token."""
        data, llm = self.graph(example), self.module.llm
        graph_token = [torch.zeros(1, llm.word_embedding.embedding_dim, device=self.device)]
        mask = llm._get_embeds([data.question], [data.desc], graph_token, [data.label])[1]
        return int(mask.sum())


def _pyg_llm(base: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, dtype: str) -> LLM:
    """Build PyG's LLM wrapper around a loaded model and tokenizer."""
    pyg_llm.MAX_TXT_LEN = 1_000_000
    warnings.filterwarnings("ignore", message="HuggingFace model .* is not using a chat template")
    plain = copy.deepcopy(tokenizer)
    plain.chat_template = None  # PyG then uses its own prompt and tokenises batches
    with (
        redirect_stdout(sys.stderr),  # it prints its settings
        patch.object(AutoModelForCausalLM, "from_pretrained", return_value=base),
        patch.object(AutoTokenizer, "from_pretrained", return_value=plain),
    ):
        llm = LLM(base.name_or_path, n_gpus=int(base.device.type == "cuda"), dtype=base.dtype)
    low = dtype == "bfloat16"
    llm.autocast_context = torch.autocast(base.device.type, torch.bfloat16, enabled=low)
    return llm
