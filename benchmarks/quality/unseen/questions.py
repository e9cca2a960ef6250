"""Reads what is asked: the questions over the documents, diaries, or conversations of a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, iter_lines
from turngraph.data.jsonlines import read_conversations
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Evidence, Turn
from turngraph.inference.evidence import read_evidence

FOLDER = Path(__file__).parent
DIARIES = FOLDER.parents[1] / "memory_graph" / "diaries.json"
PARTS = {
    "read": ("read",), "unread": ("unread",), "both": ("read", "unread"), "second": ("second",),
    "third": ("third",), "all": ("read", "unread", "second", "third"),
}  # fmt: skip
"""Names of questions over the documents, and their files."""
Key = tuple[str, str]
Accepted = tuple[tuple[Answer, ...], ...]
"""The gold answers of a question in each accepted spelling."""


@dataclass(frozen=True)
class Asked:
    """Conversations, and the accepted spellings of each answer.

    Args:
        conversations: their domains group the questions; gold answers have the first spelling.
        accepted: by conversation and turn; none if the evidence does not answer the question.
    """

    conversations: list[Conversation]
    accepted: dict[Key, Accepted]

    @property
    def hash(self) -> str:
        """SHA-256 of questions, answers and evidence."""
        pools = {id(one.evidence): one.evidence for one in self.conversations}
        texts = [[passage.text for passage in pool] for pool in pools.values()]
        turns = [(c.id, t.question, t.evidence) for c in self.conversations for t in c.turns]
        read = repr((texts, turns, sorted(self.accepted.items())))
        return hashlib.sha256(read.encode("utf-8")).hexdigest()


def read_asked(name: str) -> Asked:
    """Read questions by their name.

    Args:
        name: read, unread or both, of the questions over the documents; second or third, those
            over the second or third documents; all, over all fifteen; diaries, those of
            ``benchmarks/memory_graph``; or a path of conversations in the project's format, whose
            unanswerable questions have the gold answer "not in the evidence".

    Raises:
        UserError: a file of conversations cannot be read, or no question has a gold answer.
    """
    if name in PARTS:
        records = [one for part in PARTS[name] for one in _of_documents(part)]
    elif name == "diaries":
        records = list(_of_diaries(DIARIES))
    else:
        return _of_file(name)
    accepted: dict[tuple[str, str], tuple[tuple[Answer, ...], ...]] = {
        (conversation.id, turn.id): tuple((Answer(spelling),) for spelling in spellings)
        for conversation, answers in records
        for turn, spellings in zip(conversation.turns, answers, strict=True)
    }
    return Asked([conversation for conversation, _ in records], accepted)


Spelled = tuple[Conversation, list[list[str]]]
"""A conversation, with the accepted spellings of each turn."""


def _of_documents(part: str) -> Iterator[Spelled]:
    folder = f"{part}_documents" if part in ("second", "third") else "documents"
    pool = read_evidence([FOLDER / folder])
    for _, record in iter_lines(FOLDER / f"questions_{part}.jsonl"):
        yield _spelled(record["id"], record["document"], record["turns"], pool)


def _spelled(id_: str, domain: str, turns: list[Json], pool: tuple[Evidence, ...]) -> Spelled:
    answers = [turn["accepted"] for turn in turns]
    found = tuple(
        Turn(str(index), turn["question"], (Answer((spellings or [NOT_IN_EVIDENCE])[0]),))
        for index, (turn, spellings) in enumerate(zip(turns, answers, strict=True))
    )
    return Conversation(id_, domain, found, pool), answers


def _of_diaries(path: Path) -> Iterator[Spelled]:
    for diary in json.loads(path.read_text(encoding="utf-8")):
        texts = [f"{diary['speaker']} ({one['date']}): {one['text']}" for one in diary["entries"]]
        passages = (Evidence(str(index), text, "text") for index, text in enumerate(texts, 1))
        pool = read_evidence(passages)
        for index, question in enumerate(diary["questions"]):
            turn = {"question": question["question"], "accepted": question["answers"]}
            yield _spelled(f"{diary['name']}-{index}", diary["name"], [turn], pool)


def _of_file(path: str) -> Asked:
    conversations = read_conversations(path)
    accepted: dict[Key, Accepted] = {}
    for conversation in conversations:
        for turn in conversation.turns:
            labels = [answer.label for answer in turn.answers]
            if labels:
                is_known = labels != [NOT_IN_EVIDENCE]
                accepted[conversation.id, turn.id] = (turn.answers,) if is_known else ()
    if not accepted:
        raise UserError(f"{path}: no question with a gold answer")
    return Asked(conversations, accepted)
