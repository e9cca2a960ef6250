"""Reads LoCoMo's long conversations between two people, with questions about what they said.

    python -m turngraph.data.sources.locomo --input locomo10.json --output locomo.jsonl

What was said is the evidence, a passage a message: ``Speaker (date): text``. Every question is a
conversation of its own, as none follows another; its domain is LoCoMo's category. Questions of the
last category ask for what was never said; the answer to them is ``not in the evidence``.

LoCoMo (Maharana et al., 2024) is CC BY-NC 4.0: for evaluation only, not to train models that are
published.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.json_fields import Json, Location, field, records
from turngraph.data.jsonlines import write_conversations
from turngraph.data.sources.convmix import iter_records
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Evidence, Turn

logger = logging.getLogger(__name__)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
NEVER_SAID = 5


def read_locomo(path: str | Path) -> list[Conversation]:
    """Read the questions of LoCoMo, each as a conversation of one turn.

    Raises:
        UserError: the file is missing, or a field is missing or wrong; the message names it.
    """
    conversations: list[Conversation] = []
    for location, record in iter_records(path):
        name = field(record, "sample_id", str, location)
        said = field(record, "conversation", dict, location)
        pool = tuple(_passages(said, location / "conversation"))
        for index, (at, question) in enumerate(records(record, "qa", location)):
            conversations.append(_question(question, f"{name}-{index}", pool, at))
    if not conversations:
        raise UserError(f"{path}: no question in it")
    return conversations


def _question(record: Json, id_: str, pool: tuple[Evidence, ...], at: Location) -> Conversation:
    category = record.get("category")
    if category not in CATEGORIES:
        raise (at / "category").error(f"must be one of {', '.join(map(str, CATEGORIES))}")
    text = field(record, "question", str, at)
    is_said = category != NEVER_SAID
    answer = Answer(field(record, "answer", str, at) if is_said else NOT_IN_EVIDENCE)
    return Conversation(id_, CATEGORIES[category], (Turn("0", text, (answer,)),), pool)


def _passages(said: Json, location: Location) -> Iterator[Evidence]:
    """Yield the messages of all sessions; a picture is given by its caption."""
    session = 1
    while (name := f"session_{session}") in said:
        date = field(said, f"{name}_date_time", str, location)
        for at, message in records(said, name, location):
            text = field(message, "text", str, at)
            if caption := field(message, "blip_caption", str, at, ""):
                text += f" [shares {caption}]"
            speaker = field(message, "speaker", str, at)
            yield Evidence(field(message, "dia_id", str, at), f"{speaker} ({date}): {text}", "text")
        session += 1


def main(argv: Sequence[str] | None = None) -> None:
    """Convert LoCoMo to conversations in the project's format, for evaluation only."""
    parser = CommandParser(prog="python -m turngraph.data.sources.locomo", description=main.__doc__)
    parser.add_argument("--input", required=True, help="the benchmark's JSON file")
    parser.add_argument("--output", required=True, help="JSON Lines file to write")
    args = parser.parse_args(argv)
    conversations = read_locomo(args.input)
    write_conversations(args.output, conversations)
    counts = Counter(conversation.domain for conversation in conversations)
    named = ", ".join(f"{num} {name}" for name, num in counts.most_common())
    logger.info("%s: %s", plural(len(conversations), "question"), named)


if __name__ == "__main__":
    run_cli(main)
