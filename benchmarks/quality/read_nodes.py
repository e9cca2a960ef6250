"""Trains the node scorer on features that a frozen LM has read, with the question first.

python -m turngraph.benchmarks.quality.read_nodes --layers 12 --features runs/read \
    --input runs/data/sqa/dev.jsonl --max_questions 600 --output runs/read/dev.jsonl \
    --config sqa/graph_nodes --data.max_train_questions 2400

``model.answers: nodes`` starts from static token embeddings. Here the first layers of the LM read
every passage of E_t after the question (Q_t), each passage by itself, and the state of a token
after layer L is the feature of its node; layer 0 stands for the static embedding. The states are
computed once and kept in ``--features``. Scorer, questions, steps and rates are those of
``--config``, so that ``--layers 0`` is the control. ``--output`` holds predictions as ``turngraph
answer`` writes them: ``turngraph score`` reads them, and with ``answer --proposals`` an LM chooses
among them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm
from transformers import DynamicCache

from turngraph.configs.parse import load_config
from turngraph.configs.schema import Config
from turngraph.data.batches.prefetch import steps
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import run_cli
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example
from turngraph.data.jsonlines import dump
from turngraph.data.outputs import whole_file
from turngraph.data.prompt import QUESTION, Prompt
from turngraph.inference.answer_batches import answer_together
from turngraph.inference.load import load_builder
from turngraph.inference.questions import DRAW_SEED
from turngraph.model.base_model import load_base_model
from turngraph.model.graph_lm import GraphLM
from turngraph.training.optimizer import make_optimizer, set_rates

PASSAGES_AT_ONCE = 8
"""Passages of a forward pass, of similar length."""
logger = logging.getLogger("read_nodes")


class Reader:
    """The first layers of a frozen LM, which read each passage after the question.

    Args:
        config: names the LM and its dtype.
        layers: layers whose output is kept, from 1; 0 is the static embedding.
        prompt: of the LM's tokenizer.
    """

    def __init__(self, config: Config, layers: Sequence[int], prompt: Prompt) -> None:
        lm = load_base_model(config.model.base_model, config.model.dtype)
        self.body = lm.get_decoder()
        self.body.layers = self.body.layers[: max(*layers, 1)]
        self.body.norm = nn.Identity()
        self.layers = list(layers)
        tokenizer = prompt.tokenizer
        bos = tokenizer.bos_token_id
        self.before = [*([] if bos is None else [bos]), *prompt.tokenise_question(QUESTION).ids]
        self.between = prompt.tokenise_question("\n").ids

    @torch.no_grad()
    def states(self, example: Example) -> Tensor:
        """Return the states of the nodes of an example, [N, layers * D], each layer normalised."""
        graph = example.graph
        assert graph.mentions is not None, "built without mentions"
        ids = torch.from_numpy(np.asarray(graph.node_ids, np.int64))
        *passages, question = ids.split(graph.mentions.sizes.tolist())
        start, after = len(self.before), torch.tensor(self.between)
        prefix = torch.cat([torch.tensor(self.before), question, after])
        cache = DynamicCache()
        read = self._read(prefix[None], cache, None)[0]  # [prefix, layers * D]
        states = torch.empty(len(ids), read.shape[1], dtype=torch.bfloat16)
        states[len(ids) - len(question) :] = read[start : start + len(question)]
        starts = np.cumsum([0, *map(len, passages)])
        order = sorted(range(len(passages)), key=lambda i: len(passages[i]))
        for first in range(0, len(order), PASSAGES_AT_ONCE):
            group = order[first : first + PASSAGES_AT_ONCE]
            padded = nn.utils.rnn.pad_sequence([passages[i] for i in group], batch_first=True)
            lengths = torch.tensor([len(passages[i]) for i in group])
            kept = torch.arange(padded.shape[1]) < lengths[:, None]
            mask = functional.pad(kept, (len(prefix), 0), value=True)
            own = deepcopy(cache)
            own.batch_repeat_interleave(len(group))
            read = self._read(padded, own, mask)
            for row, index in enumerate(group):
                begin = starts[index]
                states[begin : begin + len(passages[index])] = read[row, : lengths[row]]
        return states

    def _read(self, ids: Tensor, cache: DynamicCache, mask: Tensor | None) -> Tensor:
        output = self.body(
            input_ids=ids,
            attention_mask=None if mask is None else mask.long(),
            past_key_values=cache,
            use_cache=True,
            output_hidden_states=True,
        )
        kept = [output.hidden_states[layer].float() for layer in self.layers]
        normed = [functional.layer_norm(states, states.shape[-1:]) for states in kept]
        return torch.cat(normed, -1).bfloat16()


class ReadStates(nn.Module):
    """Table of the states of all nodes of a file's examples; a node's id is its row.

    Args:
        folder: has a file of bfloat16 for each layer; those that are missing are computed.
        config: names the LM.
        examples: the examples; ``self.examples`` has them with rows in place of token ids.
        layers: layers whose states are the features.
        prompt: of the LM's tokenizer.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        examples: Sequence[Example],
        layers: Sequence[int],
        prompt: Prompt,
    ) -> None:
        super().__init__()
        sizes = [len(example.graph.node_ids) for example in examples]
        starts = np.cumsum([0, *sizes])
        paths = {layer: folder / f"{_key(examples)}_{layer}.npy" for layer in layers}
        if missing := [layer for layer in layers if not paths[layer].exists()]:
            reader = Reader(config, missing, prompt)
            shape = (int(starts[-1]), reader.body.config.hidden_size)
            parts = {n: paths[n].with_suffix(".part") for n in missing}
            made = [np.lib.format.open_memmap(parts[n], "w+", np.int16, shape) for n in missing]
            for start, example in zip(starts, tqdm(examples, desc="read"), strict=False):
                states = reader.states(example)
                for table, own in zip(made, states.chunk(len(missing), 1), strict=True):
                    table[start : start + len(own)] = own.contiguous().view(torch.int16).numpy()
            for number, table in zip(missing, made, strict=True):
                table.flush()
                parts[number].rename(paths[number])
        self.tables = [np.load(path, mmap_mode="r") for path in paths.values()]
        assert all(len(table) == starts[-1] for table in self.tables), "of other examples"
        self.width = sum(table.shape[1] for table in self.tables)
        self.weight = torch.empty(0)
        self.examples = [
            replace(e, graph=replace(e.graph, node_ids=np.arange(start, start + size)))
            for e, start, size in zip(examples, starts, sizes, strict=False)
        ]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the states of nodes, [N, width]."""
        found = [np.ascontiguousarray(table[rows.numpy()]) for table in self.tables]
        return torch.cat([torch.from_numpy(part).view(torch.bfloat16) for part in found], 1)


def main(argv: Sequence[str] | None = None) -> None:
    """Read, train and answer; print the loss of every 50 steps."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    args, rest = _parser().parse_known_args(argv)
    config = load_config(rest)
    torch.manual_seed(config.training.seed)
    builder = load_builder(config, trusted=())
    prompt = builder.prompt
    data = config.data
    folder = Path(args.features)
    folder.mkdir(parents=True, exist_ok=True)
    make = partial(load_builder, config, trusted=())
    load = partial(load_examples, builder, data=data, make_builder=make)
    assert data.train is not None, "data.train is needed"
    train = load(data.train, data.max_train_questions, seed=config.training.seed)
    asked = load(args.input, args.max_questions, seed=DRAW_SEED)
    tables = [ReadStates(folder, config, part, args.layers, prompt) for part in (train, asked)]
    model = GraphLM(config.model)
    assert model.scorer is not None, "model.answers: nodes"
    model.scorer = type(model.scorer)(torch.zeros(1, tables[0].width), config.model.scorer)
    for seconds, loss in _train(model, config, tables[0]):
        logger.info("%s: loss %.4f", seconds, loss)
    model.eval()
    model.scorer.embeddings = tables[1]  # type: ignore[assignment]  # a table in its place
    records = answer_together(
        model, prompt, tables[1].examples, config.training.eval_batch_size, desc="answer"
    )
    with whole_file(args.output) as file:
        file.write("".join(dump(record) + "\n" for record in records))
    for name in ("hit_at_1", "hit_at_5"):
        logger.info("%s %.4f", name, np.mean([float(record[name]) for record in records]))


def _train(model: GraphLM, config: Config, table: ReadStates) -> Iterator[tuple[str, float]]:
    settings, scorer = config.training, model.scorer
    assert scorer is not None
    scorer.embeddings = table  # type: ignore[assignment]  # a table in its place
    schedule = BatchSchedule(table.examples, settings)
    optimizer = make_optimizer(model, settings)
    model.train()
    losses = []
    for step in tqdm(
        steps(table.examples, schedule, range(schedule.num_steps)), total=schedule.num_steps
    ):
        set_rates(optimizer, settings, step.index, schedule.num_steps)
        total = torch.zeros(())
        for batch in step.batches:
            loss = model(batch).total / max(step.answer_tokens, 1)
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total))
        if step.index % 50 == 49:
            yield f"step {step.index + 1}", float(np.mean(losses[-50:]))


def _key(examples: Sequence[Example]) -> str:
    ids = json.dumps([[*example.key, len(example.graph.node_ids)] for example in examples])
    return hashlib.sha256(ids.encode()).hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--input", required=True, help="conversations to answer, JSON Lines")
    parser.add_argument("--max_questions", type=int, help="answer the fixed draw of so many")
    parser.add_argument("--layers", type=int, nargs="+", default=[12], help="0: static embedding")
    parser.add_argument("--features", required=True, help="folder for the states")
    parser.add_argument("--output", required=True, help="predictions, JSON Lines")
    return parser


if __name__ == "__main__":
    run_cli(main)
