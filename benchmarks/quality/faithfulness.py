"""Measures the faithfulness of an explanation's shares of passages.

    python -m turngraph.benchmarks.quality.faithfulness --checkpoint runs/sqa/graph_memory/best \
        --input runs/data/sqa/dev.jsonl --records runs/faithfulness.jsonl

Comprehensiveness is the loss of the answer's log-probability when the k selected passages are
removed; sufficiency is its loss when only they are kept (DeYoung et al., 2020). Where a scorer
answers it is the loss of probability: an entity that no passage names any more has none. The prompt
is built again each time, as if the removed passages had never been retrieved. Measurements are
appended to ``--records``; the same command resumes.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp

import numpy as np
import torch
from tqdm import tqdm

from turngraph.benchmarks.quality.records import open_records
from turngraph.benchmarks.study.row_scores import cell
from turngraph.configs.json_files import file_hash
from turngraph.configs.words import plural
from turngraph.data.batches.collate import collate
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import dump, read_conversations
from turngraph.data.scoring.score import bootstrap
from turngraph.data.types import Conversation, gold_interaction
from turngraph.infer import add_model_options
from turngraph.inference.answer_batches import answer_batch
from turngraph.inference.candidates import ranked
from turngraph.inference.explain import evidence_parts
from turngraph.inference.load import device_of, load
from turngraph.inference.options import AnswerOptions, LoadOptions
from turngraph.model.checkpoint import Checkpoint, read_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("faithfulness")
SELECTIONS = ("share", "attention", "rank", "random", "leave_one_out")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the questions that have no record yet, and print the table of all."""
    args = parse(argv)
    checkpoint = read_checkpoint(args.checkpoint)
    conversations = read_conversations(args.input)
    chosen = choose_questions(conversations, args.num_questions, False, args.seed)
    wanted = {key(conversations[index], t) for index, turns in chosen.items() for t in turns}
    with (
        StopRequest(args.max_minutes) as stop,
        open_records(args.records, settings_of(args, checkpoint)) as (done, file),
    ):
        done = [record for record in done if (record["conversation"], record["turn"]) in wanted]
        keys = {(record["conversation"], record["turn"]) for record in done}
        left = {
            index: turns
            for index, all_turns in chosen.items()
            if (turns := [t for t in all_turns if key(conversations[index], t) not in keys])
        }
        measured = measure_all(conversations, left, args, checkpoint) if left else iter(())
        for record in measured:
            done.append(record)
            file.write(dump(record) + "\n")
            file.flush()
            if stop:
                break
    print(table(done, args.sizes))
    if missing := len(wanted) - len(done):
        logger.info("%s left; the same command resumes", plural(missing, "question"))
        raise SystemExit(EXIT_GO_ON)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_options(parser)
    parser.add_argument("--input", required=True, help="conversations with gold answers")
    parser.add_argument("--records", required=True, help="JSON Lines file of the measurements")
    parser.add_argument(
        "--num_questions", type=int, default=100, help="size of the fixed draw of questions"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 3, 5], help="values of k")
    parser.add_argument("--selections", nargs="+", default=SELECTIONS, choices=SELECTIONS)
    parser.add_argument("--draws", type=int, default=3, help="random selections of each size")
    parser.add_argument(
        "--seed", type=int, default=0, help="random seed of questions and selections"
    )
    parser.add_argument("--max_minutes", type=float, help="stop after this time; exit code 75")
    return parser.parse_args(argv)


def settings_of(args: argparse.Namespace, checkpoint: Checkpoint) -> Json:
    """Return the settings that all records of a file share."""
    names = ("sizes", "selections", "draws", "seed", "max_new_tokens", "base_model", "quantization")
    return {
        "checkpoint": checkpoint.hash,
        "input": file_hash(args.input),
        "device": device_of(args.device).partition(":")[0],
        **{name: getattr(args, name) for name in names},
    }


def key(conversation: Conversation, turn: int) -> tuple[str, str]:
    """Return conversation id and turn id."""
    return conversation.id, conversation.turns[turn].id


def measure_all(
    conversations: Sequence[Conversation],
    chosen: dict[int, list[int]],
    args: argparse.Namespace,
    checkpoint: Checkpoint,
) -> Iterator[Json]:
    """Yield a record for each chosen question, in random order."""
    model, builder = load(checkpoint, LoadOptions(args.base_model, args.device, args.quantization))
    model.eval()
    builder.alone = False  # one reading of a question is measured
    options = AnswerOptions(max_new_tokens=args.max_new_tokens).resolved(checkpoint.config)
    limit = options.max_new_tokens or 0
    questions = [(index, turn) for index, turns in chosen.items() for turn in turns]
    random.Random(f"order {args.seed}").shuffle(questions)
    for index, turn in tqdm(questions, desc="questions"):
        (conversation,) = complete_entities([conversations[index]])
        (example,) = builder.conversation(conversation, [turn])
        [found] = answer_batch(model, builder.prompt, [example], limit)
        yield measure(Ablation(model, builder, example, found["answer"]), args)


class Ablation:
    """Computes how likely an answer is for any subset of its passages.

    That is its log-probability, or the probability of the entity where a scorer answers.

    Args:
        model: a model in evaluation mode.
        builder: the builder of the example.
        example: an example with gold history.
        answer: the model's.
    """

    def __init__(
        self, model: EvidenceModel, builder: ExampleBuilder, example: Example, answer: str
    ) -> None:
        self.model, self.builder, self.answer = model, builder, answer
        self.example = replace(example, target_ids=builder.prompt.target_ids(answer))
        self.num_passages = len(example.evidence)
        conversation, turn = example.conversation, example.turn
        question, interaction = (
            conversation.turns[turn].question,
            gold_interaction(conversation, turn),
        )
        self.encoded_question = builder.encoded_question(question, interaction)
        self._known: dict[tuple[int, ...], float] = {}
        self.full = self.likelihood(range(self.num_passages))

    @torch.no_grad()
    def likelihood(self, kept: Sequence[int]) -> float:
        """Return how likely the answer is with only some passages, in their order."""
        indices = tuple(sorted(kept))
        if indices not in self._known:
            evidence = [self.example.evidence[index] for index in indices]
            graph = self.builder.graph([item.evidence for item in evidence], self.encoded_question)
            example = replace(self.example, evidence=evidence, graph=graph)
            batch = collate([example], "right", with_target=True).to(self.model.device)
            if isinstance(self.model, TextLM):
                self._known[indices] = -self.model(batch).total.item()
            else:
                scores = self.model.node_scores(batch)
                [found] = ranked(self.model, self.builder.prompt, batch, [example], scores)
                chances = [exp(one.logprob) for one in found if one.entity.label == self.answer]
                self._known[indices] = sum(chances)
        return self._known[indices]

    def losses(self, order: Sequence[int], size: int) -> list[float]:
        """Return comprehensiveness and sufficiency of the first passages of an order."""
        without, only = self.likelihood(order[size:]), self.likelihood(order[:size])
        return [self.full - without, self.full - only]

    def losses_alone(self) -> list[float]:
        """Return the loss without each single passage."""
        indices = range(self.num_passages)
        return [self.full - self.likelihood([i for i in indices if i != left]) for left in indices]


def measure(question: Ablation, args: argparse.Namespace) -> Json:
    """Return one question's record: both measures for each selection and size."""
    example, num_passages = question.example, question.num_passages
    parts = evidence_parts(question.model, question.builder, example, question.answer)
    values: dict[str, Sequence[float]] = {
        "share": parts.passages.tolist(),
        "attention": parts.attention.tolist(),
        "rank": [-rank for rank in range(num_passages)],
    }
    if "leave_one_out" in args.selections:
        values["leave_one_out"] = question.losses_alone()
    orders = {name: [best_first(values[name])] for name in args.selections if name in values}
    if "random" in args.selections:
        rng = random.Random(f"{args.seed} {example.key}")
        draws = [rng.sample(range(num_passages), num_passages) for _ in range(args.draws)]
        orders["random"] = draws
    return {
        "conversation": example.key[0],
        "turn": example.key[1],
        "answer": question.answer,
        "likelihood": question.full,
        "num_passages": num_passages,
        "parts": {name: [round(float(v), 5) for v in values[name]] for name in values},
        "losses": {
            name: {
                str(size): np.mean([question.losses(o, size) for o in some], axis=0).tolist()
                for size in args.sizes
            }
            for name, some in orders.items()
        },
    }


def best_first(values: Sequence[float]) -> list[int]:
    """Return indices sorted by value, highest first; ties keep their order."""
    order: list[int] = np.argsort(-np.asarray(values, float), kind="stable").tolist()
    return order


def table(records: Sequence[Json], sizes: Sequence[int]) -> str:
    """Return a Markdown table of both measures for every selection, compared with ``share``."""
    lines = []
    for size in sizes:
        some = [record for record in records if record["num_passages"] > size]
        if not some:
            continue
        lines += [
            f"k = {size}, {len(some)} questions with more passages than that",
            "",
            "| selection | comprehensiveness | sufficiency | share's comprehensiveness minus it |",
            "|---|---|---|---|",
            *(f"| {name} | {row} |" for name, row in _rows(some, str(size))),
            "",
        ]
    return "\n".join(lines)


def _rows(records: Sequence[Json], size: str) -> Iterator[tuple[str, str]]:
    """Yield name and cells of each selection, with 95 % intervals over conversations."""
    names = list(records[0]["losses"])
    losses = np.array([[r["losses"][name][size] for name in names] for r in records])  # [Q, S, 2]
    share = losses[:, [names.index("share")], 0] if "share" in names else np.nan
    values = np.concatenate([losses[..., 0], losses[..., 1], share - losses[..., 0]], axis=1)
    cells = bootstrap(values, [record["conversation"] for record in records])
    for index, name in enumerate(names):
        shown = [cell(estimate, "+") for estimate in cells[index :: len(names)]]
        yield name.replace("_", " "), " | ".join([*shown[:2], "" if name == "share" else shown[2]])


if __name__ == "__main__":
    run_cli(main)
