"""Defines the systems that ``gpu.py`` measures beside our loop: SFTTrainer, GRetriever.

Each gets the examples, base model, LoRA, Adam and clipping of our loop, and trains on its batches.
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
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.embedding import Embed
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
    data sets have entities. Node features are a sentence encoder's, as there; for speed, which does
    not depend on them, they are drawn at random in the width of its example. Text is ours:
    instruction and evidence as its context, interaction and question as its question.
    Three settings are patched, as it has no option for them: its context may exceed 512 tokens (it
    would cut the evidence), base model and tokenizer are passed in (it would load them by name),
    and on CPU it computes in the dtype of all systems (it would use float32).

    Args:
        base: a base model that no other system uses, on its device.
        tokenizer: the base model's tokenizer.
        config: learning rates (our encoder's for its GNN and projector), dtype and clipping.
        embed: sentence encoder; None: random node features.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        config: Config,
        embed: Embed | None = None,
    ) -> None:
        self.config, self.tokenizer, self.embed = config, tokenizer, embed
        self.device = base.device
        llm = _pyg_llm(base, tokenizer, config.model.dtype)
        width = GNN_WIDTH if embed is None else embed(["width"]).shape[1]
        gnn = GAT(width, GNN_WIDTH, GNN_LAYERS, GNN_WIDTH, heads=GNN_HEADS)
        self.module = GRetriever(llm=llm, gnn=gnn, use_lora=True)
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        rates = config.training.learning_rate, config.training.encoder_learning_rate
        groups = [
            {"params": [p for name, p in named if ("lora_" in name) == lora], "full_lr": rate}
            for lora, rate in zip((True, False), rates, strict=True)
        ]
        groups = [group | {"lr": group["full_lr"]} for group in groups]
        self.optimizer = torch.optim.Adam(groups, fused=True)
        self.graphs: dict[int, tuple[Example, Data]] = {}

    def train(self, batches: Sequence[Sequence[Example]]) -> Round:
        """Take one optimizer step per batch, as in PyG's example."""
        for batch in batches:
            self.graph_batch(batch)
        self.module.train()
        began = clock(self.device)
        losses = [self.step([batch]) for batch in batches]
        return Round(clock(self.device) - began, sum(losses) / len(losses))

    def step(self, batches: Sequence[Sequence[Example]]) -> float:
        """Take one step over batches weighted by their answer tokens; return its loss."""
        tokens = [sum(len(example.target_ids) for example in batch) for batch in batches]
        total = 0.0
        for batch, count in zip(batches, tokens, strict=True):
            data = self.graph_batch(batch)
            loss = self.module(
                data.question, data.x, data.edge_index, data.batch, data.label, None, data.desc
            )
            loss = loss * count / sum(tokens)
            loss.backward()
            total += float(loss.detach())
        most = self.config.training.max_grad_norm
        norm = clip_grad_norm_(self.module.parameters(), most)
        if not torch.isfinite(norm):
            raise UserError(f"gradient norm {float(norm)}, must be finite")
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def graph_batch(self, examples: Sequence[Example]) -> Any:
        """Return the graphs of examples as one batch of PyG."""
        return PygBatch.from_data_list([self.graph(example) for example in examples])

    def graph(self, example: Example) -> Data:
        """Return an example as in PyG's data sets, built once."""
        if id(example) not in self.graphs:
            # the example is kept, so that its id stays its own
            self.graphs[id(example)] = example, self._graph(example)
        return self.graphs[id(example)][1]

    def _graph(self, example: Example) -> Data:
        def text(ids: Sequence[int]) -> str:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

        nodes = example.graph.node_ids.tolist()
        entities = [{e.id for e in item.evidence.entities} for item in example.evidence]
        pairs = permutations(range(len(entities)), 2)
        edges = [(i, j) for i, j in pairs if entities[i] & entities[j]]
        texts = [item.evidence.text for item in example.evidence]
        features = None if self.embed is None else torch.from_numpy(self.embed(texts)).float()
        return Data(
            x=torch.randn(len(texts), GNN_WIDTH) if features is None else features,
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
