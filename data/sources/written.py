"""Makes conversations from documents that somebody wrote together with questions about them.

A line of the input is one document:

    {"id": "w1", "file": "minutes.md", "text": "...",
     "conversations": [[{"q": "Who takes the minutes?", "a": "Ines"}, {"q": "Age?", "a": null}]]}

``a`` is a piece of the text, or null where the document has no answer. The text becomes passages as
a user's file of that name does. The pool of a conversation has the passages of its document and of
some others of the same part, so that the right document has to be found, too.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import find_entities
from turngraph.data.jsonlines import write_conversations
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.document import PassageLimit
from turngraph.data.sources.readers import TEXT_READERS, with_ids
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Evidence, Turn

logger = logging.getLogger(__name__)

POOL_SIZE = (15, 60)
"""Least and most passages of a pool that has other documents; a longer document stands alone."""


@dataclass(frozen=True, slots=True)
class Written:
    """A document with its questions.

    Args:
        id: of the document.
        passages: what a reader made of it.
        conversations: (question, answer) pairs; None: the document has no answer.
    """

    id: str
    passages: tuple[Evidence, ...]
    conversations: tuple[tuple[tuple[str, str | None], ...], ...]


def read_written(path: Path) -> list[Written]:
    """Read a file of documents with questions.

    Raises:
        UserError: the file cannot be read, or a line is no such document.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    return [
        _document(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _document(line: str, where: str) -> Written:
    try:
        record = json.loads(line)
        file, text = Path(record["file"]), str(record["text"])
        talks = tuple(
            tuple((str(turn["q"]), turn["a"]) for turn in talk) for talk in record["conversations"]
        )
        id_ = str(record["id"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{where}: must have id, file, text and conversations: {error!r}") from None
    if file.suffix not in TEXT_READERS:
        known = ", ".join(TEXT_READERS)
        raise UserError(f"{where}, field file: {file} ends in none of {known}")
    for talk in talks:
        for question, answer in talk:
            if answer is not None and (not isinstance(answer, str) or answer not in text):
                raise UserError(f"{where}: the text has no {answer!r}, the answer of {question!r}")
    name = f"{id_} {file.name}"
    passages = TEXT_READERS[file.suffix](text, file, PassageLimit(file, len(text)))
    return Written(id_, tuple(with_ids(passages, name)), talks)


def build_conversations(documents: Sequence[Written], seed: int) -> list[Conversation]:
    """Return a conversation for each one of the documents', with its pool.

    Args:
        documents: of one part.
        seed: random seed of the pools.
    """
    made = []
    for document in documents:
        others = [one for one in documents if one is not document]
        for number, talk in enumerate(document.conversations):
            rng = random.Random(f"written {seed} {document.id} {number}")
            pool, size = [document], rng.randint(*POOL_SIZE)
            for other in rng.sample(others, len(others)):
                if sum(len(one.passages) for one in (*pool, other)) > size:
                    break
                pool.append(other)
            rng.shuffle(pool)
            evidence = tuple(
                find_entities([passage for one in pool for passage in one.passages], extend=True)
            )
            entity_ids = {entity.id for passage in evidence for entity in passage.entities}
            turns = tuple(_turn(str(i), *turn, entity_ids) for i, turn in enumerate(talk))
            made.append(Conversation(f"{document.id}-{number}", "written", turns, evidence))
    return made


def _turn(id_: str, question: str, answer: str | None, known: set[str]) -> Turn:
    label = NOT_IN_EVIDENCE if answer is None else answer
    norm = normalise_value(label)
    return Turn(id_, question, (Answer(label, norm if norm in known else None),))


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.jsonl and tune.jsonl of conversations over documents that have questions."""
    parser = CommandParser(
        prog="python -m turngraph.data.sources.written", description=main.__doc__
    )
    add: Any = parser.add_argument
    add("--input", type=Path, nargs="+", required=True, help="documents with questions, JSON Lines")
    add("--output", type=Path, required=True, help="folder for the two files")
    add("--tune", type=float, default=0.1, help="share of the documents for tune.jsonl")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if not 0 <= args.tune < 1:
        raise UserError(f"--tune {args.tune}: must lie in [0, 1)")
    logging.getLogger("turngraph.data.sources.readers").setLevel(logging.ERROR)  # of many files
    documents = [document for path in args.input for document in read_written(path)]
    random.Random(args.seed).shuffle(documents)
    num_tune = round(args.tune * len(documents))
    parts = {"train": documents[num_tune:], "tune": documents[:num_tune]}
    for part, part_documents in parts.items():
        made = build_conversations(part_documents, args.seed)
        write_conversations(args.output / f"{part}.jsonl", made)
        turns = [turn for conversation in made for turn in conversation.turns]
        none = sum(turn.answers[0].label == NOT_IN_EVIDENCE for turn in turns)
        logger.info(
            "%s: %s, %s, %s, %d unanswerable",
            args.output / f"{part}.jsonl",
            plural(len(part_documents), "document"),
            plural(len(made), "conversation"),
            plural(len(turns), "question"),
            none,
        )


if __name__ == "__main__":
    run_cli(main)
