"""Measures computed answers to questions about a synthetic life.

    python -m turngraph.benchmarks.memory_graph ontology

Asks the wordings of two authors about ten years of 2,000 facts, from given triplets and from
sentences read by the rules, and the same after the dates were shuffled.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turngraph.benchmarks.memory_graph.life_questions import (
    PARTS,
    Question,
    questions,
    unanswerable,
    whole_units,
)
from turngraph.benchmarks.memory_graph.memory_retrieval import parser_of, write_reports
from turngraph.benchmarks.memory_graph.synthetic_life import (
    SAID,
    SPEAKER,
    Life,
    given_lines,
    make_life,
    shuffled_dates,
)
from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.ontology.compute import Computed, compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.model.checkpoint import commit

COMMAND = ["python", "-m", "turngraph.benchmarks.memory_graph", "ontology"]
_NUMBER = re.compile(r"[\d.]+")


def main(argv: Sequence[str]) -> None:
    """Measure the parts, print their tables and write the JSON file."""
    args = parse(argv)
    report: Json = {"seed": args.seed, "machine": machine()}
    print(f"commit {report['machine']['commit']}, load {report['machine']['load']}\n")
    report["life"] = measure_life(args.seed, args.wordings, args.show)
    if args.output:
        write_reports(args.output, [*COMMAND, *argv], [report])


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = parser_of(COMMAND, __doc__)
    add = parser.add_argument
    add("--wordings", nargs="+", choices=PARTS, default=list(PARTS))
    add("--seed", type=int, default=0, help="random seed")
    add("--show", action="store_true", help="print each wrong answer")
    add("--output", help="JSON file")
    return parser.parse_args(argv)


def machine() -> Json:
    """Return commit, processors and load of this machine."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return {"commit": commit(), "cpus": os.cpu_count(), "load": load}


# The synthetic life


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


def measure_life(seed: int, parts: Sequence[str], show: bool) -> Json:
    """Ask the questions of the life, filled in two ways and shuffled, and print a table of each."""
    life = make_life(seed)
    found: Json = {"facts": life.num_facts}
    with tempfile.TemporaryDirectory() as folder:
        graphs = {
            "given triplets": fill_given(Path(folder) / "given.db", life),
            "text by rules": fill_text(Path(folder) / "text.db", life),
        }
        other = fill_given(Path(folder) / "shuffled.db", shuffled_dates(life, seed + 1))
        for part in parts:
            asked = questions(life, part, seed)
            for name, graph in graphs.items():
                lens = Lens(graph.store, load_ontology())
                tallies = ask_all(lens, asked, show)
                found[f"{part}, {name}"] = {k: vars(v) for k, v in tallies.items()}
                print(table(f"{part} wordings, {name}", tallies), flush=True)
            changed = num_changed(graphs["given triplets"], other, asked)
            found[f"{part}, shuffled dates"] = changed
            print(f"shuffled dates: {changed['changed']} of {changed['answered']} answers of "
                  "operations on dates change\n", flush=True)  # fmt: skip
            without = unanswerable(part)
            for name, graph in graphs.items():
                found[f"{part} unanswerable, {name}"] = silent = num_silent(graph, without, show)
                print(
                    f"{part} unanswerable, {name}: {silent} of {len(without)} without an answer\n"
                )
        for graph in (*graphs.values(), other):
            graph.close()
    return found


def total(tallies: dict[str, Tally]) -> Tally:
    """Return the counts of all operations."""
    names = ("asked", "exact", "evidence", "silent")
    return Tally(*(sum(getattr(one, name) for one in tallies.values()) for name in names))


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


"""Computes the answer of a question at a time."""


def ask_all(lens: Lens, asked: Iterable[Question], show: bool = False) -> dict[str, Tally]:
    """Return the counts of each operation."""
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
    return dict(tallies)


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


def num_changed(graph: MemoryGraph, other: MemoryGraph, asked: Iterable[Question]) -> Json:
    """Return how many answers differ in a graph whose dates were shuffled."""
    lenses = [Lens(one.store, load_ontology()) for one in (graph, other)]
    answered = changed = 0
    for one in asked:
        if one.operation in _UNDATED:
            continue
        answers: list[str | None] = []
        for lens in lenses:
            try:
                answers.append(compute(lens, one.text, one.as_of).answer)
            except NoPlan:
                answers.append(None)
        answered += answers[0] is not None
        changed += answers[0] is not None and answers[0] != answers[1]
    return {"answered": answered, "changed": changed}


def num_silent(graph: MemoryGraph, asked: Iterable[str], show: bool = False) -> int:
    """Return how many of the unanswerable questions get no answer."""
    lens, silent = Lens(graph.store, load_ontology()), 0
    for text in asked:
        try:
            found = compute(lens, text, "2024-01-01")
        except NoPlan:
            silent += 1
        else:
            if show:
                print(f"  answered: {text}: {found.answer} ({found.operation})")
    return silent


def table(title: str, tallies: dict[str, Tally]) -> str:
    """Return a Markdown table of the operations and of all."""
    lines = [
        f"### {title}",
        "",
        "| operation | asked | exact | evidence exact | wrong | no answer |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for name, one in [*tallies.items(), ("all", total(tallies))]:
        shares = (one.exact, one.evidence, one.asked - one.exact - one.silent, one.silent)
        cells = " | ".join(f"{number / one.asked:.3f}" for number in shares)
        lines.append(f"| {name} | {one.asked} | {cells} |")
    return "\n".join(lines) + "\n"
