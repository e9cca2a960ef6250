"""Reads episodes from plain text, documents, JSON Lines of texts, and conversations.

The origin of an episode is its file and a hash of its fields, so that equal input is remembered
once, and a file can be read again after a stop or when it has grown.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json, Location, UnknownFields, field, filled, iter_lines
from turngraph.data.jsonlines import read_conversations
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.times import offset_of, parse_time
from turngraph.data.memory_graph.turns import TurnExtractor, turn_episode
from turngraph.data.normalise import parse_date
from turngraph.data.sources.chat_log import messages, times
from turngraph.data.types import Conversation, target_answer

logger = logging.getLogger(__name__)

JSON_LINES = {".jsonl", ".json", ".ndjson"}
DOCUMENTS = {".md", ".html", ".htm", ".csv", ".tsv", ".pdf", ".docx"}
"""Suffixes of formatted documents, which the readers of evidence pools read."""
RDF = {".ttl", ".trig", ".nt", ".nq", ".rdf", ".owl", ".jsonld"}
"""Suffixes of ontologies and other RDF, which are no texts."""
TEXT_FIELDS = {"text", "time", "source", "speaker", "origin", "properties"}


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """Read the episodes of a file.

    A ``.jsonl`` file holds conversations (docs/formats.md), whose finished turns become episodes,
    or one text a line with ``text`` and optionally ``time``, ``source``, ``speaker``, ``origin``
    and ``properties``. A Markdown, HTML, CSV, PDF or Word file is read as for an evidence pool; its
    sentences (of Markdown, its paragraphs) and rows become episodes. RDF is refused. Any other file
    is plain text: the messages of a chat log with their speakers and times, else its paragraphs.
    A heading or line that is a date and nothing else is the time of what stands below it.

    Args:
        path: path of the file; its name is the default source.

    Raises:
        UserError: the file is missing, unreadable or RDF, nothing is in it, or a line or field is
            invalid; the message names it.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: " + ("a folder, not a file" if path.is_dir() else "no such file"))
    if path.suffix.lower() in RDF:
        raise UserError(
            f"{path}: RDF, not a text; `import --rdf` reads files of `export --trig`, or any Turtle"
        )
    if path.suffix.lower() in DOCUMENTS:
        return _with_origins(path, _passages(path))
    if path.suffix.lower() not in JSON_LINES:
        return filled(path, _with_origins(path, _plain_text(path)))
    first = next(iter_lines(path), None)
    if first is not None and first[1].keys() & {"turns", "pool"}:
        read = (e for c in read_conversations(path) for e in conversation_episodes(c, path))
        return filled(path, read, "no turn with an answer in it")
    return filled(path, _with_origins(path, _texts(path)))


def _plain_text(path: Path) -> Iterator[Episode]:
    """Yield the messages of a chat log, or the paragraphs of any other text."""
    log = messages(_decoded(path))
    said, doubtful = times(log)
    if doubtful:
        logger.warning(
            "%s: dates such as %s are read with the day first; if the month is first, write"
            " 2024-12-31",
            path,
            doubtful,
        )
    for message, when in zip(log, said, strict=True):
        if text := "\n".join(message.lines).strip():
            yield Episode(text, time=when, source=path.name, speaker=message.speaker or None)


def _decoded(path: Path) -> str:
    lines: list[str] = []
    with path.open("rb") as file:
        for line_number, raw in enumerate(file, 1):
            try:
                lines.append(raw.decode("utf-8-sig" if line_number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                location = Location(path, line_number)
                what = "UTF-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "not UTF-8"
                raise location.error(
                    f"{what} at byte {error.start + 1}; save the file as UTF-8, or convert it, as"
                    " with `iconv -f cp1252 -t UTF-8` from Windows' encoding"
                ) from None
    return "".join(lines)


def _passages(path: Path) -> Iterator[Episode]:
    """Yield the passages of a document: texts with their title beside them, and whole rows.

    A heading that is a date is the time of what stands below it.
    """
    from turngraph.data.sources.readers import read_document  # parsers, which few files need

    read = read_document(path, by_sentence=False)
    if read.encoding is not None:
        logger.info("%s: read as %s", path, read.encoding)
    for passage in read.passages:
        title = passage.entities[0].label if passage.entities else ""
        day = parse_date(passage.id)
        if passage.source == "text" and passage.text.startswith(f"{title}, "):
            text = passage.text.removeprefix(f"{title}, ")
            yield Episode(text, time=day, source=path.name, properties={"title": title})
        else:
            yield Episode(passage.text, time=day, source=path.name)


def _texts(path: Path) -> Iterator[Episode]:
    unknown = UnknownFields()
    try:
        for location, record in iter_lines(path):
            unknown.add(record, TEXT_FIELDS, location)
            yield _text(record, location, path)
    finally:
        unknown.warn()


def _text(record: Json, location: Location, path: Path) -> Episode:
    text = field(record, "text", str, location)
    if not text.strip():
        raise (location / "text").error("empty")
    properties = field(record, "properties", dict, location, {})
    time = _time(record, location)
    zone = {} if time is None else offset_of(record["time"])
    return Episode(
        text=text,
        time=time,
        source=field(record, "source", str, location, path.name),
        origin=field(record, "origin", str, location, None),
        speaker=field(record, "speaker", str, location, None),
        properties=zone | {name: _plain(value) for name, value in properties.items()},
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time(record: Json, location: Location) -> str | None:
    time = field(record, "time", str, location, None)
    if time is None:
        return None
    try:
        return parse_time(time)
    except UserError as error:
        raise (location / "time").error(f"{time[:40]!r} given: {error}") from None


def _with_origins(path: Path, episodes: Iterator[Episode]) -> Iterator[Episode]:
    """Add missing origins; equal episodes of one file get different ones."""
    seen: Counter[str] = Counter()
    for episode in episodes:
        if episode.origin is None:
            key = content_hash(episode.text, episode.time, episode.source, episode.speaker)
            seen[key] += 1
            repetition = f":{seen[key]}" if seen[key] > 1 else ""
            origin = f"{path.resolve()}:{key}{repetition}"
            episode = dataclasses.replace(episode, origin=origin)
        yield episode


def content_hash(*parts: str | None) -> str:
    """Return a short hash of texts."""
    joined = json.dumps(parts).encode()
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def conversation_episodes(conversation: Conversation, path: Path) -> Iterator[Episode]:
    """Yield an episode for each turn with an answer; its source is the conversation's id."""
    extractor = TurnExtractor()
    topic: tuple[str, ...] = ()
    for turn in conversation.turns:
        answer = target_answer(turn.answers)
        key = content_hash(conversation.id, turn.id, turn.question, answer)
        origin = f"{path.resolve()}:{key}"
        if answer:
            about = extractor.topic(turn.question, topic)
            yield turn_episode(
                turn.question, answer, source=conversation.id, origin=origin, topic=about
            )
        topic = extractor.names(turn.question, answer, topic)
