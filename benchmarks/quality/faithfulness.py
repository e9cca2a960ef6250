"""Measures the faithfulness of an explanation's shares of passages.

    python -m turngraph.benchmarks.quality.faithfulness --checkpoint reader \
        --input runs/data/sqa/dev.jsonl --records runs/faithfulness.jsonl

Comprehensiveness is the loss of the answer's log-probability when the k selected passages are
removed; sufficiency is its loss when only they are kept (DeYoung et al., 2020). Where the graph
answers, as in the packaged reader, it is the loss of probability: an answer that no passage has any
more has none. The prompt is built again each time, as if the removed passages had never been
retrieved. Passages are selected by share, by attention, by rank and at random. Measurements are
appended to ``--records``; the same command resumes.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from turngraph.benchmarks.quality.records import open_records
from turngraph.benchmarks.tables import cell, parser_of
from turngraph.benchmarks.tables import table as markdown
from turngraph.configs.json_files import file_hash
from turngraph.configs.words import plural
from turngraph.data.batches.collate import candidate_entities
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import dump, read_conversations
from turngraph.data.scoring.score import bootstrap
from turngraph.data.types import Conversation, gold_interaction
from turngraph.infer import add_model_options, check_paths, loading
from turngraph.inference.answer_batches import answer_batch
from turngraph.inference.explain import Parts, evidence_parts
from turngraph.inference.load import device_of, load
from turngraph.inference.options import AnswerOptions
from turngraph.model.checkpoint import Checkpoint, read_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.node_ranker import NodeRanker
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("faithfulness")
DRAWS = 2
"""Random selections of each size."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the questions that have no record yet, and print the table of all."""
    args = parse(argv)
    checkpoint, conversations = read_checkpoint(args.checkpoint), read_conversations(args.input)
    chosen = choose_questions(conversations, args.num_questions, False, args.seed)
    questions = [(conversations[index], turn) for index, turns in chosen.items() for turn in turns]
    wanted = {(one.id, one.turns[turn].id): (one, turn) for one, turn in questions}
    with (
        StopRequest(args.max_minutes) as stop,
        open_records(args.records, settings_of(args, checkpoint)) as (known, file),
    ):
        done = [one for one in known if (one["conversation"], one["turn"]) in wanted]
        for one in done:
            del wanted[one["conversation"], one["turn"]]
        for record in measure_all(list(wanted.values()), args, checkpoint):
            done.append(record)
            file.write(dump(record) + "\n")
            file.flush()
            if stop:
                break
    print(table(done, args.sizes))
    if missing := len(questions) - len(done):
        logger.info("%s left; the same command resumes", plural(missing, "question"))
        raise SystemExit(EXIT_GO_ON)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(__doc__)
    add_model_options(parser)
    parser.add_argument("--input", required=True, help="conversations with gold answers")
    parser.add_argument("--records", required=True, help="JSON Lines file of the measurements")
    parser.add_argument("--num_questions", type=int, default=100, help="size of a fixed draw")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 3, 5], help="values of k")
    parser.add_argument("--seed", type=int, default=0, help="of questions and selections")
    parser.add_argument("--max_minutes", type=float, help="stop after this time; exit code 75")
    args = parser.parse_args(argv)
    check_paths(args)
    return args


def settings_of(args: argparse.Namespace, checkpoint: Checkpoint) -> Json:
    """Return the settings that all records of a file share."""
    names = ("sizes", "seed", "max_new_tokens", "base_model", "quantization", "corpus", "retriever")
    device = device_of(args.device).partition(":")[0]
    hashes = {"checkpoint": checkpoint.hash, "input": file_hash(args.input)}
    return hashes | {"device": device, **{name: getattr(args, name) for name in names}}


def measure_all(
    questions: Sequence[tuple[Conversation, int]], args: argparse.Namespace, checkpoint: Checkpoint
) -> Iterator[Json]:
    """Yield a record for each question, a conversation and the index of a turn, at random."""
    if not questions:
        return
    model, builder = load(checkpoint, loading(args))
    builder.alone = False  # one reading of a question is measured
    options = AnswerOptions(max_new_tokens=args.max_new_tokens).resolved(checkpoint.config)
    order = random.Random(f"order {args.seed}").sample(questions, len(questions))
    for one, turn in tqdm(order, desc="questions"):
        (example,) = builder.conversation(complete_entities([one])[0], [turn])
        [found] = answer_batch(model, builder.prompt, [example], options.max_new_tokens or 0)
        yield measure(Ablation(model, builder, example, found["answer"]), args.sizes, args.seed)


class Ablation:
    """Computes how likely an answer is for any subset of its passages.

    That is its log-probability, or its probability where the graph answers.

    Args:
        model: a model in evaluation mode.
        builder: the builder of the example.
        example: an example with gold history.
        answer: the model's.
    """

    def __init__(
        self, model: EvidenceModel, builder: ExampleBuilder, example: Example, answer: str
    ) -> None:
        self.model, self.builder, self.example, self.answer = model, builder, example, answer
        self.num_passages = len(example.evidence)
        interaction = gold_interaction(example.conversation, example.turn)
        self.encoded_question = builder.encoded_question(example.question, interaction)
        self._known: dict[tuple[int, ...], float] = {}
        self.full = self.likelihood(range(self.num_passages))

    def parts(self, example: Example) -> Parts:
        """Return the answer's log-probability with an example's passages, and their shares."""
        return evidence_parts(self.model, self.builder, example, self.answer)

    def likelihood(self, kept: Sequence[int]) -> float:
        """Return how likely the answer is with only some passages, in their order."""
        indices = tuple(sorted(kept))
        if indices not in self._known:
            evidence = [self.example.evidence[index] for index in indices]
            graph = self.builder.graph([item.evidence for item in evidence], self.encoded_question)
            example = replace(self.example, evidence=evidence, graph=graph)
            logprob = None
            if not isinstance(self.model, NodeRanker) or self.answer in labels(example):
                logprob = self.parts(example).logprob
            if logprob is None:  # no passage has the answer
                self._known[indices] = 0.0
            else:
                self._known[indices] = (
                    logprob if isinstance(self.model, TextLM) else math.exp(logprob)
                )
        return self._known[indices]

    def losses(self, order: Sequence[int], size: int) -> list[float]:
        """Return comprehensiveness and sufficiency of the first passages of an order."""
        without, only = self.likelihood(order[size:]), self.likelihood(order[:size])
        return [self.full - without, self.full - only]


def labels(example: Example) -> set[str]:
    """Return the labels of the entities that an example's passages mention."""
    return {entity.label for entity in candidate_entities(example)}


def measure(question: Ablation, sizes: Sequence[int], seed: int) -> Json:
    """Return one question's record: both measures for each selection and size."""
    example, places = question.example, range(question.num_passages)
    parts = question.parts(example)
    values = {"share": parts.passages.tolist(), "attention": parts.attention.tolist()}
    orders = {name: [best_first(some)] for name, some in values.items()} | {"rank": [list(places)]}
    rng = random.Random(f"{seed} {example.key}")
    orders["random"] = [rng.sample(places, len(places)) for _ in range(DRAWS)]
    return {
        "conversation": example.key[0],
        "turn": example.key[1],
        "answer": question.answer,
        "likelihood": question.full,
        "num_passages": len(places),
        "parts": {name: [round(float(v), 5) for v in some] for name, some in values.items()},
        "losses": {
            name: {
                str(size): np.mean([question.losses(o, size) for o in some], axis=0).tolist()
                for size in sizes
                if size < len(places)
            }
            for name, some in orders.items()
        },
    }


def best_first(values: Sequence[float]) -> list[int]:
    """Return indices sorted by value, highest first; ties keep their order."""
    order: list[int] = np.argsort(-np.asarray(values, float), kind="stable").tolist()
    return order


def table(records: Sequence[Json], sizes: Sequence[int]) -> str:
    """Return a table of both measures for every selection, compared with ``share``, by size."""
    heads = ["selection", "comprehensiveness", "sufficiency", "share's comprehensiveness minus it"]
    lines = []
    for size in sizes:
        if some := [record for record in records if record["num_passages"] > size]:
            lines += [f"k = {size}, {len(some)} questions with more passages than that", ""]
            lines += [markdown(heads, rows(some, str(size))), ""]
    return "\n".join(lines)


def rows(records: Sequence[Json], size: str) -> Iterator[list[str]]:
    """Yield the cells of each selection, with 95 % intervals over conversations."""
    names = list(records[0]["losses"])
    losses = np.array([[r["losses"][name][size] for name in names] for r in records])  # [Q, S, 2]
    share = losses[:, [names.index("share")], 0]
    values = np.concatenate([losses[..., 0], losses[..., 1], share - losses[..., 0]], axis=1)
    cells = bootstrap(values, [record["conversation"] for record in records])
    for index, name in enumerate(names):
        shown = [cell(estimate, "+") for estimate in cells[index :: len(names)]]
        yield [name.replace("_", " "), *shown[:2], "" if name == "share" else shown[2]]


if __name__ == "__main__":
    run_cli(main)
