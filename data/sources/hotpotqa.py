"""Reads HotpotQA (Yang et al. 2018) as conversations of one question.

The pool of a question has the sentences of its paragraphs, each after the title of its page. A
page's title is an entity, with the title as its id, of the page's sentences and of other sentences
that name it. The names, dates and numbers of sentences are entities, too (``find_entities``).
"""

from __future__ import annotations

import argparse
import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import find_entities
from turngraph.data.json_fields import Json, Location, field, records, shown
from turngraph.data.jsonlines import write_conversations
from turngraph.data.linearise import linearise_sentence, split_sentences
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.convmix import iter_records
from turngraph.data.sources.page_entities import (
    Passage,
    resolve_entities,
    strip_disambiguation,
)
from turngraph.data.sources.sqa import log_counts
from turngraph.data.types import Answer, Conversation, Turn

logger = logging.getLogger(__name__)

PARTS = ("train", "tune", "dev")
DEV, TUNE = 12, 20
"""Of a hundred questions the first 12 are dev, those up to the 20th tune, the others train."""

Page = tuple[str, list[str]]
"""A title and sentences."""


def part_of(id_: str) -> str:
    """Return the part of a question: its id's SHA-256 modulo 100, dev below 12, tune below 20."""
    number = int.from_bytes(hashlib.sha256(id_.encode("utf-8")).digest(), "big") % 100
    return "dev" if number < DEV else "tune" if number < TUNE else "train"


def convert(path: Path, part: str | None = None) -> list[Conversation]:
    """Return the questions of a file, each as a conversation, in the file's order.

    Args:
        path: JSON list of questions as HotpotQA gives them (``_id``, ``question``, ``answer``,
            ``context``), or JSON Lines with ``question_id``, ``question_text``,
            ``answers_objects`` and ``contexts``.
        part: train, tune or dev, by ``part_of``; None: all.

    Raises:
        UserError: a field is wrong, or no question is left; the message names file and field.
    """
    conversations = []
    for location, record in track(list(iter_records(path)), "questions", "questions"):
        is_lines = "question_text" in record
        id_ = field(record, "question_id" if is_lines else "_id", str, location)
        if part is None or part_of(id_) == part:
            read = _of_lines if is_lines else _of_original
            conversations.append(_conversation(id_, *read(record, location)))
    if not conversations:
        raise UserError(f"{path}: no question" + (f" of {part}" if part else "") + " in it")
    return conversations


def _of_original(record: Json, location: Location) -> tuple[str, str, list[Page]]:
    pages = field(record, "context", list, location)
    question = _filled(record, "question", location)
    answer = _filled(record, "answer", location)
    return question, answer, [_page(p, location / "context" / i) for i, p in enumerate(pages)]


def _page(value: Any, location: Location) -> Page:
    match value:
        case [str(title), list(sentences)] if all(isinstance(s, str) for s in sentences):
            return title, sentences
    raise location.error(f"must be a title and a list of sentences, not {shown(value)}")


def _of_lines(record: Json, location: Location) -> tuple[str, str, list[Page]]:
    question = _filled(record, "question_text", location)
    answers = list(records(record, "answers_objects", location))
    spans = field(answers[0][1], "spans", list, answers[0][0]) if answers else []
    if not spans or not isinstance(spans[0], str) or not spans[0].strip():
        raise (location / "answers_objects").error("the first must have a text in spans")
    pages = [
        (field(page, "title", str, at), split_sentences(field(page, "paragraph_text", str, at)))
        for at, page in records(record, "contexts", location)
    ]
    return question, " ".join(spans[0].split()), pages


def _filled(record: Json, name: str, location: Location) -> str:
    text = " ".join(field(record, name, str, location).split())
    if not text:
        raise (location / name).error("empty")
    return text


def _conversation(id_: str, question: str, label: str, pages: Sequence[Page]) -> Conversation:
    linked, names = resolve_entities("", list(_passages(pages)))  # "": no page is the pool's own
    with_ids = [replace(one, entities=tuple(e for e in one.entities if e.id)) for one in linked]
    pool = tuple(find_entities(with_ids, extend=True))
    entity_ids = {entity.id for passage in pool for entity in passage.entities}
    ids = (names.value_id(label), normalise_value(label))
    answer = Answer(label, next((entity_id for entity_id in ids if entity_id in entity_ids), None))
    return Conversation(
        f"hotpotqa-{id_}", "hotpotqa", (Turn("0", question, (answer,), "text"),), pool
    )


def _passages(pages: Sequence[Page]) -> Iterator[Passage]:
    for title, sentences in pages:
        name = strip_disambiguation(title)
        texts = [text for sentence in sentences if (text := " ".join(sentence.split()))]
        for number, sentence in enumerate(texts, 1):
            text = linearise_sentence(title, sentence)
            links = [(name, title), (title, title)]
            yield Passage(f"{title}, {number}", text, "text", links, [name])


def main(argv: Sequence[str] | None = None) -> None:
    """Convert HotpotQA to conversations in the project's format."""
    args = _parser().parse_args(argv)
    conversations = convert(args.input, args.part)
    write_conversations(args.output, conversations)
    log_counts(conversations, Counter())
    yes_no = sum(c.turns[0].answers[0].label in ("yes", "no") for c in conversations)
    logger.info("yes or no: %s", plural(yes_no, "answer"))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m turngraph.data.sources.hotpotqa", description=main.__doc__
    )
    add = parser.add_argument
    add("--input", type=Path, required=True, help="hotpot_dev_distractor_v1.json or one like it")
    add("--output", type=Path, required=True, help="JSON Lines file to write")
    add("--part", choices=PARTS, help="by a hash of the id: 12 %% dev, 8 %% tune, 80 %% train")
    return parser


if __name__ == "__main__":
    run_cli(main)
