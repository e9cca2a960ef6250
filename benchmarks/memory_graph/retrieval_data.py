"""Reads MuSiQue, HotpotQA and LoCoMo as episodes to remember and questions about them.

LoCoMo is CC BY-NC 4.0: for evaluation only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import Episode

Json = dict[str, Any]
FILES = {
    "musique": ("musique_100.json", "musique_100_corpus.json"),
    "hotpotqa": ("hotpotqa_500.jsonl",),
    "locomo": ("locomo_3.json",),
}
NEVER_SAID = 5
"""LoCoMo's category of unanswerable questions."""
_TURN = re.compile(r"D\d+:\d+")


class Question(NamedTuple):
    """A question and the origins of its gold episodes; none if nothing should be found."""

    text: str
    gold: frozenset[str]


@dataclass(frozen=True)
class Collection:
    """Episodes that are remembered together, and questions about them.

    Args:
        name: name of the benchmark, or of one of its conversations.
        episodes: episodes in order; their origin is their index.
        questions: questions about the episodes.
        dated: texts of the episodes with the time in front, for flat retrieval; None: no times.
    """

    name: str
    episodes: Sequence[Episode]
    questions: Sequence[Question]
    dated: Sequence[str] | None = None


def read(benchmark: str, folder: Path) -> list[Collection]:
    """Read the collections of a benchmark: one, or for LoCoMo one per conversation.

    Args:
        benchmark: a key of ``FILES``.
        folder: folder with the files, at any depth.

    Raises:
        UserError: a file is missing.
    """
    paths = [find_file(folder, name) for name in FILES[benchmark]]
    if benchmark == "hotpotqa":
        return [_hotpotqa([json.loads(line) for line in paths[0].open(encoding="utf-8")])]
    loaded = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [_musique(*loaded)] if benchmark == "musique" else list(_locomo(loaded[0]))


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, at any depth.

    Raises:
        UserError: the file is missing.
    """
    found = sorted(folder.rglob(name))
    if not found:
        raise UserError(f"--data {folder}: no {name} in it")
    return found[0]


def _passages(passages: Sequence[tuple[str, str]]) -> list[Episode]:
    return [
        Episode(f"{title}\n{text}", origin=str(index), properties={"title": title})
        for index, (title, text) in enumerate(passages)
    ]


def _musique(items: Sequence[Json], corpus: Sequence[Json]) -> Collection:
    passages = [(passage["title"], passage["text"]) for passage in corpus]
    index = {passage: str(i) for i, passage in enumerate(passages)}
    questions = [
        Question(
            one["question"],
            frozenset(
                index[part["title"], part["paragraph_text"]]
                for part in one["paragraphs"]
                if part["is_supporting"]
            ),
        )
        for one in items
    ]
    return Collection("musique", _passages(passages), questions)


def _hotpotqa(items: Sequence[Json]) -> Collection:
    indices: dict[tuple[str, str], str] = {}
    questions = []
    for one in items:
        gold = set()
        for part in one["contexts"]:
            passage = part["title"], part["paragraph_text"]
            index = indices.setdefault(passage, str(len(indices)))
            if part["is_supporting"]:
                gold.add(index)
        questions.append(Question(one["question_text"], frozenset(gold)))
    return Collection("hotpotqa", _passages(list(indices)), questions)


def _locomo(conversations: Sequence[Json]) -> Iterator[Collection]:
    for conversation in conversations:
        turns = list(_turns(conversation["conversation"], conversation["sample_id"]))
        indices = {turn: str(i) for i, (turn, _) in enumerate(turns)}
        episodes = [episode for _, episode in turns]
        questions = []
        for one in conversation["qa"]:
            named = _TURN.findall(" ".join(one.get("evidence", ())))
            gold = frozenset(indices[turn] for turn in named if turn in indices)
            if one["category"] == NEVER_SAID:
                questions.append(Question(one["question"], frozenset()))
            elif gold:
                questions.append(Question(one["question"], gold))
        dated = [f"{episode.properties['date']} {episode.text}" for episode in episodes]
        yield Collection(conversation["sample_id"], episodes, questions, dated=dated)


def _turns(conversation: Json, name: str) -> Iterator[tuple[str, Episode]]:
    """Yield each turn's id and its episode, "Speaker: text", with the session as source."""
    count = 0
    session = 1
    while f"session_{session}" in conversation:
        date = conversation[f"session_{session}_date_time"]
        time = datetime.strptime(date.upper(), "%I:%M %p ON %d %B, %Y").isoformat("T", "minutes")
        for turn in conversation[f"session_{session}"]:
            text = f"{turn['speaker']}: {turn['text']}"
            if turn.get("blip_caption"):
                text += f" [shares {turn['blip_caption']}]"
            source = f"{name}, session {session}"
            episode = Episode(text, time, source, str(count), turn["speaker"], {"date": date})
            yield turn["dia_id"], episode
            count += 1
        session += 1
