"""Measures which triplets the rules read from texts whose triplets are known.

    python -m turngraph.benchmarks.memory_graph extraction --input FILE [--show HALF]

The first line of the file says how a triplet is matched (``tests/data/memory_graph/
extraction.jsonl`` is one). Prints precision and recall of each half, as a Markdown table, and the
failures of the halves that are named after ``--show``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turngraph.benchmarks.tables import parser_of, table
from turngraph.configs.user_error import UserError
from turngraph.data import json_fields
from turngraph.data.json_fields import Location
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.extract.word_lists import ADVERBS, VERB_FORMS
from turngraph.data.memory_graph.memory_types import Episode, Triplet
from turngraph.data.memory_graph.names import alias

Json = dict[str, Any]
_FLAGS = {"from": str, "to": str, "hypothesis": bool, "optional": bool}
_ARTICLES = frozenset(("a", "an", "the"))
_AUXILIARIES = frozenset(("be", "have", "do"))
_INVERSE = "~"


@dataclass(frozen=True, slots=True)
class Gold:
    """Triplet that a careful reader stores.

    Args:
        subjects, relations, objects: alternatives of each part; a relation after "~" is one from
            object to subject.
        valid_from, valid_to: when it holds, [from, to).
        hypothesis: said as a possibility only.
        optional: it counts neither when it is missed nor when it is found.
    """

    subjects: tuple[str, ...]
    relations: tuple[str, ...]
    objects: tuple[str, ...]
    valid_from: str | None = None
    valid_to: str | None = None
    hypothesis: bool = False
    optional: bool = False

    def matches(self, found: Triplet) -> bool:
        """Return whether a triplet that was read states the same."""
        if (found.valid_from, found.valid_to) != (self.valid_from, self.valid_to):
            return False
        if found.hypothesis != self.hypothesis:
            return False
        ends = alias(found.subject), alias(found.object)
        subjects, objects = set(map(alias, self.subjects)), set(map(alias, self.objects))
        for relation in self.relations:
            is_inverse = relation.startswith(_INVERSE)
            first, second = (ends[1], ends[0]) if is_inverse else ends
            same = _is_same_relation(relation.removeprefix(_INVERSE), found.relation)
            if same and first in subjects and second in objects:
                return True
        return False

    def __str__(self) -> str:
        times = f"[{self.valid_from or ''}, {self.valid_to or ''})"
        flags = "? " * self.hypothesis + "(optional) " * self.optional
        parts = ("|".join(part) for part in (self.subjects, self.relations, self.objects))
        return f"{flags}{' ; '.join(parts)} {times}"


@dataclass(frozen=True, slots=True)
class Case:
    """Text with its gold triplets, of one half."""

    half: str
    episode: Episode
    gold: tuple[Gold, ...]


@dataclass(slots=True)
class Counts:
    """Counts of one half.

    Args:
        texts: number of texts.
        gold: number of triplets that have to be found.
        found: number of triplets that were read, without optional ones.
        right: number of them that match.
        recalled: number of gold triplets that are matched.
        failures: what was missed and what is wrong, in words.
    """

    texts: int = 0
    gold: int = 0
    found: int = 0
    right: int = 0
    recalled: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Share of the triplets that were read which are right."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Share of the gold triplets that were read."""
        return self.recalled / self.gold if self.gold else 1.0


def main(argv: Sequence[str]) -> None:
    """Measure and print the table and the failures."""
    parser = parser_of(__doc__)
    parser.add_argument("--input", required=True, help="JSON Lines of texts with gold triplets")
    parser.add_argument("--show", nargs="+", default=[], help="halves whose failures are printed")
    args = parser.parse_args(argv)
    counts = measure(read_cases(args.input))
    for half in args.show:
        if half not in counts:
            raise UserError(f"--show {half} given, must be one of {', '.join(counts)}")
    print(markdown(counts))
    for half in args.show:
        print("\n".join(["", f"### Failures, {half}", "", *counts[half].failures]))


def read_cases(path: str | Path) -> list[Case]:
    """Return the cases of a file; its line with ``about`` is skipped.

    Raises:
        UserError: a line is malformed; the message names file, line and field.
    """
    cases = []
    for location, row in json_fields.iter_lines(path):
        if "about" in row:
            continue
        text = json_fields.field(row, "text", str, location)
        said = json_fields.field(row, "said", str, location, None)
        speaker = json_fields.field(row, "speaker", str, location, None)
        golds = json_fields.field(row, "gold", list, location)
        gold = tuple(_gold(each, location / "gold" / i) for i, each in enumerate(golds))
        half = json_fields.field(row, "half", str, location)
        cases.append(Case(half, Episode(text, said, speaker=speaker), gold))
    return cases


def _gold(value: Any, location: Location) -> Gold:
    ends, more = (value[:3], value[3:]) if isinstance(value, list) else ([], [])
    if len(ends) != 3 or not all(isinstance(part, str) and part for part in ends) or len(more) > 1:
        raise location.error("must be [subject, relation, object] and at most one object after it")
    flags = more[0] if more else {}
    if not isinstance(flags, dict) or not all(
        isinstance(flag, _FLAGS.get(name, ())) for name, flag in flags.items()
    ):
        raise location.error(f"may have {', '.join(_FLAGS)} after the three parts")
    subjects, relations, objects = (tuple(part.split("|")) for part in ends)
    return Gold(
        subjects,
        relations,
        objects,
        valid_from=flags.get("from"),
        valid_to=flags.get("to"),
        hypothesis=flags.get("hypothesis", False),
        optional=flags.get("optional", False),
    )


def measure(cases: Sequence[Case]) -> dict[str, Counts]:
    """Return the counts of every half, in the order of the cases."""
    counts: dict[str, Counts] = {}
    for case, read in zip(
        cases, RulesExtractor().extract([case.episode for case in cases]), strict=True
    ):
        count(case, read.triplets, counts.setdefault(case.half, Counts()))
    return counts


def count(case: Case, found: Sequence[Triplet], counts: Counts) -> None:
    """Add one text with the triplets that were read to the counts of its half."""
    required = [gold for gold in case.gold if not gold.optional]
    optional = [gold for gold in case.gold if gold.optional]
    right = [t for t in found if any(gold.matches(t) for gold in required)]
    wrong = [t for t in found if t not in right and not any(gold.matches(t) for gold in optional)]
    missed = [gold for gold in required if not any(gold.matches(t) for t in found)]
    counts.texts += 1
    counts.gold += len(required)
    counts.found += len(right) + len(wrong)
    counts.right += len(right)
    counts.recalled += len(required) - len(missed)
    if wrong or missed:
        counts.failures.append(case.episode.text)
        counts.failures += [f"    missed {gold}" for gold in missed]
        counts.failures += [f"    wrong  {_described(triplet)}" for triplet in wrong]


def _described(found: Triplet) -> str:
    times = f"[{found.valid_from or ''}, {found.valid_to or ''})"
    ends = " ; ".join((found.subject, found.relation, found.object))
    return f"{'? ' * found.hypothesis}{ends} {times}"


def _is_same_relation(gold: str, found: str) -> bool:
    """Return whether relations are equal, but for an object inside: "sold (old bike) to"."""
    wanted, words = relation_words(gold), relation_words(found)
    if len(wanted) == 2 < len(words):
        return (words[0], words[-1]) == wanted
    return words == wanted


def relation_words(relation: str) -> tuple[str, ...]:
    """Return the words by which a relation is compared."""
    words = [word for word in relation.lower().split() if word not in _ARTICLES]
    bases = [VERB_FORMS.get(word, (word,))[0] for word in words]
    kept = [b for b in bases if b not in _AUXILIARIES and b not in ADVERBS]
    if not kept:
        return ("was" if words[:1] in (["was"], ["were"]) else bases[0],) if words else ()
    return tuple("in" if word in ("at", "on") else word for word in kept)


def markdown(counts: dict[str, Counts]) -> str:
    """Return the Markdown table of all halves."""
    rows = [
        (half, one.texts, one.gold, one.found, f"{one.precision:.3f}", f"{one.recall:.3f}")
        for half, one in counts.items()
    ]
    return table(["half", "texts", "gold triplets", "read", "precision", "recall"], rows)
