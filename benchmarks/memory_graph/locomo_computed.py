"""What the typed facts of LoCoMo's conversations hold and compute; read by the rules.

LoCoMo is CC BY-NC 4.0: for evaluation only.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turngraph.benchmarks.memory_graph.retrieval_data import NEVER_SAID, Question, read
from turngraph.configs.user_error import UserError
from turngraph.data.entities import FUNCTION_WORDS
from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.extract.word_lists import NUMBER_WORDS
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.data.memory_graph.record.select_episodes import episodes_of_origins
from turngraph.data.memory_graph.times import parse_time
from turngraph.data.normalise import words

_COUNT = re.compile(rf"(\d+|{'|'.join(NUMBER_WORDS)})(?: \w+)?", re.IGNORECASE)


@dataclass
class _Counts:
    """Counts: questions whose gold turns' facts hold their answer, or that of another question;
    questions of dates and numbers, computed and right; what was never said and yet computed.
    """

    asked: int = 0
    covered: int = 0
    permuted: int = 0
    exact_asked: int = 0
    exact_computed: int = 0
    exact_right: int = 0
    other_computed: int = 0
    never_said: int = 0
    never_said_computed: int = 0
    typed: int = 0
    facts: int = 0


def measure_locomo(folder: Path, seed: int) -> Json:
    """Print and return coverage, its permuted control, and exact match on dates and numbers.

    Args:
        folder: holds ``locomo_3.json`` at any depth.
        seed: random seed of the permutation.
    """
    path = next(iter(sorted(folder.rglob("locomo_3.json"))), None)
    if path is None:
        raise UserError(f"{folder}: no locomo_3.json")
    counts, rng = _Counts(), random.Random(seed)
    items = json.loads(path.read_text(encoding="utf-8"))
    for item, collection in zip(items, read("locomo", folder), strict=True):
        with (
            tempfile.TemporaryDirectory() as place,
            MemoryGraph.open(Path(place) / "my.db") as graph,
        ):
            graph.remember_many(collection.episodes)
            last = max(one.time for one in collection.episodes if one.time)
            _measure(graph, item["qa"], collection.questions, last, rng, counts)
    shares = counts.covered / counts.asked, counts.permuted / counts.asked
    print(f"LoCoMo, {counts.asked} questions, {counts.facts} facts by rules, of which "
          f"{counts.typed / counts.facts:.3f} typed: gold turns cover {shares[0]:.3f}, permuted "
          f"{shares[1]:.3f}, difference {shares[0] - shares[1]:.3f}")  # fmt: skip
    print(f"dates and numbers: {counts.exact_asked} questions, {counts.exact_computed} computed, "
          f"{counts.exact_right} right; others computed: {counts.other_computed}; never said: "
          f"{counts.never_said_computed} of {counts.never_said} computed\n")  # fmt: skip
    return vars(counts)


def _measure(
    graph: MemoryGraph,
    asked: Sequence[Json],
    questions: Sequence[Question],
    last: str,
    rng: random.Random,
    counts: _Counts,
) -> None:
    lens = Lens(graph.store, load_ontology())
    lens.refresh()
    counts.facts += len(lens.facts)
    counts.typed += len(lens.facts) - lens.unknown.total()
    golds = {one.text: one.gold for one in questions if one.gold}
    answerable = [
        one for one in asked if one["question"] in golds and one["category"] != NEVER_SAID
    ]
    mixed = rng.sample(answerable, len(answerable))
    for one, other in zip(answerable, mixed, strict=True):
        literals = _literals(graph, golds[one["question"]])
        counts.asked += 1
        counts.covered += _is_covered(str(one["answer"]), literals)
        counts.permuted += _is_covered(str(other["answer"]), literals)
    for one in asked:
        _compute(lens, one, last, counts)


def _literals(graph: MemoryGraph, origins: Iterable[str]) -> list[str]:
    """Return names and times of the facts that the gold turns say."""
    episodes = episodes_of_origins(graph.store.db, list(origins))
    sql = """SELECT s.text, o.text, e.valid_from FROM json_each(?) j
        JOIN provenance p ON p.episode = j.value AND p.fact & 1 JOIN edges e ON e.id = p.fact >> 1
        JOIN nodes s ON s.id = e.source JOIN nodes o ON o.id = e.target"""
    rows = graph.store.db.execute(sql, (json.dumps(episodes),))
    return sorted({text for row in rows for text in row if text})


def _compute(lens: Lens, asked: Json, last: str, counts: _Counts) -> None:
    try:
        found = compute(lens, asked["question"], last).answer
    except NoPlan:
        found = None
    if asked["category"] == NEVER_SAID:
        counts.never_said += 1
        counts.never_said_computed += found is not None
        return
    gold = _exact(str(asked["answer"]))
    if gold is None:
        counts.other_computed += found is not None
        return
    counts.exact_asked += 1
    counts.exact_computed += found is not None
    counts.exact_right += found is not None and _exact(found) == gold


def _exact(text: str) -> str | None:
    """Return a date in ISO form or a number of an answer that is one; else None."""
    try:
        return parse_time(text)
    except ValueError:
        found = _COUNT.fullmatch(text.strip())
    if found is None:
        return None
    return str(NUMBER_WORDS.get(found[1].lower(), found[1]))


def _is_covered(answer: str, literals: Sequence[str]) -> bool:
    """Return whether a literal matches an answer: as IBM's slides match, see the specification."""
    plain, exact = alias(answer), _exact(answer)
    said = set(words(answer)) - FUNCTION_WORDS
    return any(_matches(plain, exact, said, one) for one in literals)


def _matches(plain: str, exact: str | None, said: set[str], literal: str) -> bool:
    other = alias(literal)
    if not other:
        return False
    whole, part = f" {plain} ", f" {other} "
    if part in whole or whole in part or (exact is not None and exact == _exact(literal)):
        return True
    return bool(said) and 2 * len(said & set(words(literal))) >= len(said)
