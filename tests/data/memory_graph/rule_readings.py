"""What the rules read from every committed text and compute for every committed question.

    python -m turngraph.tests.data.memory_graph.rule_readings

writes ``rule_readings.json`` again after a change that is meant, and prints which readings have
changed. The file holds a hash of each reading: parts that nobody is to read, so that they measure
the rules on new texts, stay unread.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path

from turngraph.benchmarks.memory_graph.extraction import read_cases
from turngraph.benchmarks.memory_graph.life_questions import questions
from turngraph.benchmarks.memory_graph.memory_ontology import evidence_of, fill_given
from turngraph.benchmarks.memory_graph.synthetic_life import make_life
from turngraph.data.memory_graph.extract.rules import RulesExtractor
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.ontology.compute import compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.question_plan import NoPlan

FOLDER = Path(__file__).parent
READINGS = FOLDER / "rule_readings.json"
TEXTS = ("extraction.jsonl", "extraction_unseen.jsonl", "extraction_second.jsonl")
WORDINGS = (
    "fresh_dev", "fresh_test", "unseen_dev", "unseen_test", "second_dev", "second_test",
    "third_dev", "third_test",
)  # fmt: skip
UNREAD = ("extraction_unseen.jsonl, unseen", "extraction_second.jsonl, unseen", "second_test",
          "third_test")  # fmt: skip
"""Parts that nobody has read, nor what the rules make of them."""
SAID = "2024-05-08"
Readings = dict[str, dict[str, str]]
"""Part -> text or question -> what came of it."""


def readings() -> Readings:
    """Read all texts and answer all questions."""
    return text_readings() | question_readings()


def text_readings() -> Readings:
    """Return theses and triplets of the texts of every set, and of the sentences in the tests."""
    found: Readings = {}
    episodes: dict[str, Episode] = {}
    for name in TEXTS:
        for case in read_cases(FOLDER / name):
            found.setdefault(f"{name}, {case.half}", {})[case.episode.text] = ""
            episodes[case.episode.text] = case.episode
    episodes = {
        case.episode.text: case.episode for name in TEXTS for case in read_cases(FOLDER / name)
    }
    sentences: set[str] = set()
    for path in FOLDER.glob("test_*.py"):
        sentences |= set(re.findall(r'"([A-Z][^"\\\n]{12,150}[.!?])"', path.read_text("utf-8")))
    found["sentences of the tests"] = dict.fromkeys(sorted(sentences), "")
    for part, texts in found.items():
        said = [episodes.get(text) or Episode(text, SAID, speaker="Anna") for text in texts]
        read = RulesExtractor().extract(said)
        found[part] = dict(zip(texts, map(repr, read), strict=True))
    return found


def question_readings() -> Readings:
    """Return what is computed for each question about the life, with its facts, or why not."""
    found: Readings = {}
    life = make_life(0)
    with tempfile.TemporaryDirectory() as folder:
        graph = fill_given(Path(folder) / "given.db", life)
        lens = Lens(graph.store, load_ontology())
        for part in WORDINGS:
            asked = questions(life, part, 0)
            once = asked if part.startswith("unseen") else asked[::2]  # two of each wording
            found[part] = {}
            for one in once:
                try:
                    got = compute(lens, one.text, one.as_of)
                except NoPlan as reason:
                    found[part][one.text] = str(reason)
                else:
                    said = sorted(evidence_of(got), key=str)
                    found[part][one.text] = f"{got.answer} ({got.operation}) {said}"
        graph.close()
    return found


def hashes(found: Readings) -> dict[str, dict[str, str]]:
    """Return the hashes of texts and readings, part by part."""
    return {
        part: {short(text): short(reading) for text, reading in texts.items()}
        for part, texts in found.items()
    }


def short(text: str) -> str:
    """Return the first digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def changed(found: Readings, known: dict[str, dict[str, str]]) -> list[str]:
    """Return lines for each text whose reading is another one than the file knows."""
    lines = []
    for part, texts in found.items():
        for text, reading in texts.items():
            if known.get(part, {}).get(short(text), short(reading)) != short(reading):
                is_read = part not in UNREAD
                lines.append(f"{part}: {text}\n    {reading}" if is_read else f"{part}: (unread)")
    return lines


def main() -> None:
    """Write the file, and print what has changed."""
    found = readings()
    known = json.loads(READINGS.read_text("utf-8")) if READINGS.exists() else {}
    print("\n".join(changed(found, known)[:100]))
    READINGS.write_text(json.dumps(hashes(found), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
