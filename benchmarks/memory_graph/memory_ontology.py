"""Measures computed answers to questions about a synthetic life.

    python -m turngraph.benchmarks.memory_graph ontology

Asks the wordings of two authors about ten years of 2,000 facts, from given triplets and from
sentences read by the rules, and the same after the dates were shuffled.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path

from turngraph.benchmarks.memory_graph.life_questions import (
    PARTS,
    Question,
    questions,
    unanswerable,
    whole_units,
)
from turngraph.benchmarks.memory_graph.synthetic_life import (
    SAID,
    SPEAKER,
    Life,
    given_lines,
    make_life,
    shuffled_dates,
)
from turngraph.benchmarks.tables import parser_of, table
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.ontology.compute import Computed, compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.model.checkpoint import commit

_NUMBER = re.compile(r"[\d.]+")


def main(argv: Sequence[str]) -> None:
    """Ask the questions, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--wordings", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--show", action="store_true", help="print each wrong answer")
    args = parser.parse_args(argv)
    print(f"commit {commit()}\n")
    measure_life(args.seed, args.wordings, args.show)


@dataclass
class Tally:
    """Counts of one operation.

    Args:
        asked, exact, evidence, silent: questions; right answers; right answers with exactly the
            facts that count; questions without an answer.
    """

    asked: int = 0
    exact: int = 0
    evidence: int = 0
    silent: int = 0

    def cells(self) -> list[str]:
        """Return the number of questions, and shares of them."""
        wrong = self.asked - self.exact - self.silent
        counts = (self.exact, self.evidence, wrong, self.silent)
        return [str(self.asked), *(f"{count / self.asked:.3f}" for count in counts)]


def measure_life(seed: int, parts: Sequence[str], show: bool) -> None:
    """Ask the questions of the life, filled in two ways and shuffled, and print a table of each."""
    life = make_life(seed)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        given = stack.enter_context(fill_given(folder / "given.db", life))
        text = stack.enter_context(fill_text(folder / "text.db", life))
        shuffled = shuffled_dates(life, seed + 1)
        other = stack.enter_context(fill_given(folder / "shuffled.db", shuffled))
        for part in parts:
            asked, without = questions(life, part, seed), unanswerable(part)
            for way, graph in (("given triplets", given), ("text by rules", text)):
                tallies = ask_all(Lens(graph.store, load_ontology()), asked, show)
                heads = ["operation", "asked", "exact", "evidence exact", "wrong", "no answer"]
                rows = [(operation, *tally.cells()) for operation, tally in tallies.items()]
                print(f"### {part} wordings, {way}\n\n{table(heads, rows)}\n")
                silent = num_silent(graph, without, show)
                print(f"unanswerable: {silent} of {len(without)} without an answer\n", flush=True)
            answered, changed = num_changed(given, other, asked)
            print(f"shuffled dates: {changed} of {answered} answers about dates change\n")


def fill_given(path: Path, life: Life) -> MemoryGraph:
    """Return a graph of the life's triplets, with two people called Anna."""
    lines = path.with_suffix(".jsonl")
    lines.write_text("\n".join(map(json.dumps, given_lines(life))), encoding="utf-8")
    extractor = GivenExtractor()
    graph = MemoryGraph.open(path, extractor=extractor)
    graph.remember_many(extractor.read(lines))
    return _with_two_annas(graph)


def fill_text(path: Path, life: Life) -> MemoryGraph:
    """Return a graph of the life's sentences in the order of their dates, read by the rules."""
    graph = MemoryGraph.open(path)
    facts = [one for kind in life.facts.values() for one in kind]
    texts = dict.fromkeys(one.text for one in sorted(facts, key=lambda one: one.since or ""))
    graph.remember_many(Episode(text, time=SAID, speaker=SPEAKER) for text in texts)
    return _with_two_annas(graph)


def _with_two_annas(graph: MemoryGraph) -> MemoryGraph:
    works = [fact.key for fact in graph.history("Anna") if "Siemens" in fact.text]
    graph.split("Anna", "Anna", facts=works)
    return graph


def ask_all(lens: Lens, asked: Iterable[Question], show: bool = False) -> dict[str, Tally]:
    """Return the counts of each operation, and of all."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for one in asked:
        tally = tallies[one.operation]
        tally.asked += 1
        try:
            found = compute(lens, one.text, one.as_of)
        except NoPlan as reason:
            tally.silent += 1
            if show:
                print(f"  {one.operation}: {one.text} [{one.as_of}]: {reason}")
            continue
        right = is_right(one, found)
        facts = evidence_of(found) == one.evidence
        tally.exact += right
        tally.evidence += right and facts
        if show and not (right and facts):
            wrong = f"{found.answer} ({found.operation}), gold {one.gold}"
            print(f"  {one.operation}: {one.text} [{one.as_of}]: {wrong if not right else 'facts'}")
    sums = (sum(column) for column in zip(*map(astuple, tallies.values()), strict=True))
    return {**tallies, "all": Tally(*sums)}


def evidence_of(found: Computed) -> frozenset[tuple[str, str | None]]:
    """Return object and date of each fact that an answer counts."""
    return frozenset(
        (fact.entities[-1][1], fact.valid_from) for item in found.items for fact in item.facts
    )


def is_right(question: Question, found: Computed) -> bool:
    """Return whether an answer is exactly the question's."""
    if question.kind in ("names", "dates"):
        return set(found.answer.split(", ")) == set(question.gold)
    if question.kind == "yes":
        return found.answer == str(question.gold)
    if question.kind == "order":
        places = [found.answer.find(name) for name in question.gold]
        return -1 not in places and places == sorted(places)
    number = _NUMBER.match(found.answer.replace(",", ""))
    if number is None or " to " in found.answer:
        return False
    if question.kind == "span":
        unit = found.answer.split()[-1].removesuffix("s")
        asked = re.search(r"many (day|week|month|year)s", question.text)
        fits = asked is None or asked[1] == unit
        first, last = question.gold
        return fits and float(number[0]) == whole_units(first, last, unit)
    wanted, unit = question.gold
    return abs(float(number[0]) - wanted) <= max(0.0051, wanted * 0.001) and unit in found.answer


_UNDATED = frozenset({"exists", "age", "value"})


def num_changed(
    graph: MemoryGraph, other: MemoryGraph, asked: Iterable[Question]
) -> tuple[int, int]:
    """Return how many get an answer, and how many another one over shuffled dates."""
    lenses = [Lens(one.store, load_ontology()) for one in (graph, other)]
    answered = changed = 0
    for one in asked:
        if one.operation not in _UNDATED:
            here, there = (answer_of(lens, one.text, one.as_of) for lens in lenses)
            answered += here is not None
            changed += here not in (None, there)
    return answered, changed


def num_silent(graph: MemoryGraph, asked: Iterable[str], show: bool = False) -> int:
    """Return how many of the unanswerable questions get no answer."""
    lens, silent = Lens(graph.store, load_ontology()), 0
    for text in asked:
        found = answer_of(lens, text, "2024-01-01")
        silent += found is None
        if show and found is not None:
            print(f"  answered: {text}: {found}")
    return silent


def answer_of(lens: Lens, text: str, as_of: str) -> str | None:
    """Return the computed answer; None where there is none."""
    try:
        return compute(lens, text, as_of).answer
    except NoPlan:
        return None
