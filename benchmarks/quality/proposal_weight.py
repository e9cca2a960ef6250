"""Finds the weight and the number of proposals with which an LM chooses best.

    python -m turngraph.benchmarks.quality.proposal_weight PREDICTIONS

Reads what ``answer --proposals`` wrote for tune questions, and prints H@1 for each weight and
number of proposals and the best of both, for ``--proposal_weight`` and ``--num_proposals`` on other
questions. No question is answered again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from turngraph.data.cli import run_cli
from turngraph.data.json_fields import iter_lines
from turngraph.data.jsonlines import Json
from turngraph.data.scoring.metrics import hit
from turngraph.data.scoring.predictions import read_predictions
from turngraph.data.scoring.proposals import Proposal, chosen
from turngraph.data.types import Answer, Entity

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
NUMBERS = (2, 3, 5, 7, 10, 15, 20)
Question = tuple[list[Proposal], list[float], tuple[Answer, ...]]
"""Proposals, best first; log-probability of each label to the LM; gold answers."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("predictions", help="of infer.py answer --proposals, on tune questions")
    questions = read_questions(parser.parse_args(argv).predictions)
    found = {
        (weight, number): hits(questions, weight, number)
        for weight in WEIGHTS
        for number in NUMBERS
    }
    heads = ["weight", *(f"{number} proposals" for number in NUMBERS)]
    print(f"H@1 of {len(questions)} questions\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for weight in WEIGHTS:
        cells = [f"{found[weight, number]:.3f}" for number in NUMBERS]
        print(f"| {' | '.join([f'{weight:g}', *cells])} |")
    shares = [among(questions, number) for number in NUMBERS]
    print(f"| gold among them | {' | '.join(f'{share:.3f}' for share in shares)} |\n")
    weight, number = max(found, key=lambda pair: found[pair])
    print(f"Best: --proposal_weight {weight:g} --num_proposals {number}")


def read_questions(path: str) -> list[Question]:
    """The questions of a file that have proposals.

    Raises:
        ValueError: a line is malformed, or was not chosen by an LM; the message names it.
    """
    gold = {(one.conversation, one.turn): one.gold for one in read_predictions(path)}
    found = []
    for place, record in iter_lines(path):
        if record.get("error"):
            continue
        candidates: list[Json] = record["candidates"]
        if not all({"id", "written", "proposed"} <= one.keys() for one in candidates):
            raise (place / "candidates").error("were not chosen from --proposals")
        candidates = sorted(candidates, key=lambda one: -one["proposed"])
        proposals = [Proposal(Entity(c["id"], c["label"]), c["proposed"]) for c in candidates]
        written = [one["written"] for one in candidates]
        found.append((proposals, written, gold[record["conversation"], record["turn"]]))
    if not found:
        raise ValueError(f"{path}: all its lines are errors")
    return found


def hits(questions: Sequence[Question], weight: float, number: int) -> float:
    """H@1 of the LM and the proposals together."""
    num = 0
    for proposals, written, gold in questions:
        best = chosen(proposals[:number], written[:number], weight)[0].entity
        num += hit(best.label, [best], gold, 1, is_entity=True)
    return num / len(questions)


def among(questions: Sequence[Question], number: int) -> float:
    """Share of questions whose gold answer is among so many proposals."""
    num = 0
    for proposals, _, gold in questions:
        entities = [proposal.entity for proposal in proposals[:number]]
        num += hit(entities[0].label, entities, gold, number, is_entity=True)
    return num / len(questions)


if __name__ == "__main__":
    run_cli(main)
