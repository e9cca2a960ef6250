"""Wordings of the questions about a synthetic life, by operation and kind.

Those of ``dev`` may be used to extend the rules, those of ``test`` were written at the same time.
``life_wordings_fresh.json`` has wordings that were written later, without a look at the rules, in
two halves by their hash: the rules were extended with ``fresh_dev``, and ``fresh_test`` was asked
once before and once after that. ``life_questions_unseen.jsonl`` has whole questions by an author
who had not seen the rules, in halves in the same way; both halves were read since, first
``unseen_dev``. ``life_wordings_more.json`` has wordings by the author of the rules, and
``life_wordings_second.json`` those of a second one who had not seen them, in halves: both were
asked once, and nobody has read ``second_test`` or what it got. ``life_wordings_third.json`` has
wordings of a third author who had seen no rules and no other wordings, in halves as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WORDINGS = Path(__file__).with_name("life_wordings.json")
FRESH = Path(__file__).with_name("life_wordings_fresh.json")
MORE = Path(__file__).with_name("life_wordings_more.json")
UNSEEN = Path(__file__).with_name("life_questions_unseen.jsonl")
SECOND = Path(__file__).with_name("life_wordings_second.json")
THIRD = Path(__file__).with_name("life_wordings_third.json")
HALVED = {"fresh": FRESH, "second": SECOND, "third": THIRD}
"""Files whose wordings are in two halves, by the beginning of the names of these parts."""
_HALVES = [f"{name}_{half}" for name in (*HALVED, "unseen") for half in ("dev", "test")]
WORDING_PARTS = ("dev", "test", "more", *_HALVES)
Wordings = dict[str, dict[str, list[str]]]


def wordings_of(part: str) -> Wordings:
    """Return the wordings of each operation by kind.

    Args:
        part: of ``WORDING_PARTS``.
    """
    if path := halved(part):
        return {
            operation: {kind: _half(texts, part) for kind, texts in kinds.items()}
            for operation, kinds in _read(path)["questions"].items()
        }
    found: Wordings = _read(MORE)["questions"] if part == "more" else _read(WORDINGS)[part]
    return found


def unanswerable(part: str = "dev") -> list[str]:
    """Return questions that the life does not answer: of a half, or the old ones."""
    if path := halved(part):
        return _half(_read(path)["unanswerable"], part)
    if part.startswith("unseen"):
        return [one["question"] for one in _unseen(part) if one["gold"] is None]
    found: list[str] = _read(MORE if part == "more" else WORDINGS)["unanswerable"]
    return found


def halved(part: str) -> Path | None:
    """Return the file of which a part is one half."""
    return HALVED.get(part.partition("_")[0])


def unseen_questions(part: str) -> list[dict[str, Any]]:
    """Return the fields of the ``Question`` of each line with an answer in a half."""
    return [
        {
            "operation": one["kind"],
            "text": one["question"],
            "as_of": one.get("as_of", "2024-01-01"),
            "kind": one["answer_kind"],
            "gold": frozenset(gold) if one["answer_kind"] in ("names", "dates") else gold,
            "evidence": frozenset((name, since) for name, since in one["evidence"]),
        }
        for one in _unseen(part)
        if (gold := one["gold"]) is not None
    ]


def _unseen(part: str) -> list[dict[str, Any]]:
    """Return the lines of a half of the other author's questions, but those with a doubt."""
    _, *lines = map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines())
    half = set(_half((one["question"] for one in lines), part))
    return [one for one in lines if one["question"] in half and "doubt" not in one]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _half(texts: Iterable[str], part: str) -> list[str]:
    """Return the texts of one half: a wording's half is the last bit of its SHA-256."""
    bit = part.endswith("_test")
    return [one for one in texts if hashlib.sha256(one.encode()).digest()[-1] % 2 == bit]
