"""Finds the best weight and number of proposals for an LM that chooses among proposals.

    python -m turngraph.benchmarks.quality.proposal_weight PREDICTIONS

Reads the output of ``answer --proposals`` on tune questions, and prints H@1 for each weight and
number of proposals. The best pair is for ``--proposal_weight`` and ``--num_proposals`` on other
questions. No question is answered again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.scoring.metrics import hit
from turngraph.data.scoring.predictions import read_predictions
from turngraph.data.scoring.proposals import Proposal, chosen
from turngraph.data.types import Answer, Entity

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
NUMS_PROPOSALS = (2, 3, 5, 7, 10, 15, 20)
Question = tuple[list[Proposal], list[float], tuple[Answer, ...]]
"""Proposals, best first; the LM's log-probability of each label; gold answers."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("predictions", help="output of answer --proposals on tune questions")
    questions = read_questions(parser.parse_args(argv).predictions)
    found = {
        (weight, num_proposals): hits(questions, weight, num_proposals)
        for weight in WEIGHTS
        for num_proposals in NUMS_PROPOSALS
    }
    heads = ["weight", *(f"{num_proposals} proposals" for num_proposals in NUMS_PROPOSALS)]
    print(f"H@1 of {len(questions)} questions\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for weight in WEIGHTS:
        cells = [f"{found[weight, num_proposals]:.3f}" for num_proposals in NUMS_PROPOSALS]
        print(f"| {' | '.join([f'{weight:g}', *cells])} |")
    shares = [among(questions, num_proposals) for num_proposals in NUMS_PROPOSALS]
    print(f"| gold among them | {' | '.join(f'{share:.3f}' for share in shares)} |\n")
    weight, num_proposals = max(found, key=lambda pair: found[pair])
    print(f"Best: --proposal_weight {weight:g} --num_proposals {num_proposals}")


def read_questions(path: str) -> list[Question]:
    """Read the questions that have proposals.

    Raises:
        UserError: a line is malformed, or its answer was not chosen by an LM; names the line.
    """
    gold = {(one.conversation, one.turn): one.gold for one in read_predictions(path)}
    found = []
    for location, record in iter_lines(path):
        if record.get("error"):
            continue
        candidates: list[Json] = record["candidates"]
        if not all({"id", "written", "proposed"} <= one.keys() for one in candidates):
            raise (location / "candidates").error("were not chosen from --proposals")
        candidates = sorted(candidates, key=lambda one: -one["proposed"])
        proposals = [Proposal(Entity(c["id"], c["label"]), c["proposed"]) for c in candidates]
        written = [one["written"] for one in candidates]
        found.append((proposals, written, gold[record["conversation"], record["turn"]]))
    if not found:
        raise UserError(f"{path}: all its lines are errors")
    return found


def hits(questions: Sequence[Question], weight: float, num_proposals: int) -> float:
    """Return H@1 of LM and proposals together, for a weight and a number of proposals."""
    num = 0
    for proposals, written, gold in questions:
        best = chosen(proposals[:num_proposals], written[:num_proposals], weight)[0].entity
        num += hit(best.label, [best], gold, 1, is_entity=True)
    return num / len(questions)


def among(questions: Sequence[Question], num_proposals: int) -> float:
    """Return the share of questions whose gold answer is among the first proposals."""
    num = 0
    for proposals, _, gold in questions:
        entities = [proposal.entity for proposal in proposals[:num_proposals]]
        num += hit(entities[0].label, entities, gold, num_proposals, is_entity=True)
    return num / len(questions)


if __name__ == "__main__":
    run_cli(main)
