"""Conversations and evidence pools as JSON Lines: read with checks, written whole.

A conversation file holds one conversation a line. Conversations over the same page may share it:
a line ``{"pool": ID, "evidence": [...]}`` gives the pool, and a conversation below it names it by
``"pool": ID``. A pool file holds one piece of evidence a line.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from data.types import SOURCES, Answer, Conversation, Entity, Evidence, Turn

logger = logging.getLogger(__name__)

Json = dict[str, Any]
CONVERSATION_FIELDS = {"id", "domain", "turns", "evidence", "pool"}
TURN_FIELDS = {"id", "question", "answers", "source", "evidence"}
_KIND = {str: "a string", list: "a list", dict: "an object"}


class Place:
    """Where in a file a value stands, so that every error can name file, line and field."""

    def __init__(self, path: str | Path, line: int | None = None, field: str = "") -> None:
        self.path, self.line, self.field = path, line, field

    def __truediv__(self, part: str | int) -> Place:
        if isinstance(part, int):
            return Place(self.path, self.line, f"{self.field}[{part}]")
        return Place(self.path, self.line, f"{self.field}.{part}" if self.field else part)

    def error(self, message: str) -> ValueError:
        """The one error that a user sees: ``FILE, line N, field F: message``."""
        parts = [str(self.path)]
        parts += [f"line {self.line}"] if self.line is not None else []
        parts += [f"field {self.field}"] if self.field else []
        return ValueError(f"{', '.join(parts)}: {message}")


def iter_lines(path: str | Path) -> Iterator[tuple[Place, Json]]:
    """Each non-blank line of a JSON Lines file as an object, with its place.

    Raises:
        ValueError: the file is missing, or a line is not UTF-8 or not a JSON object; the message
            names file, line and, for bad JSON, column.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            place = Place(path, number)
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise place.error(f"not UTF-8 at byte {error.start + 1}") from None
            if text.strip():
                yield place, _parse(text.rstrip("\r\n"), place)


def _parse(text: str, place: Place) -> Json:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        column = f" (column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise place.error(f"not JSON: {getattr(error, 'msg', 'too deep')}{column}") from None
    if not isinstance(value, dict):
        raise place.error("each line must be a JSON object")
    return value


def field(record: Json, name: str, kind: type, place: Place, default: Any = ...) -> Any:
    """A field of a record, checked for its kind; strings lose lone surrogates.

    Args:
        record: the JSON object.
        name: the field's name.
        kind: ``str``, ``list`` or ``dict``; for ``str`` a whole number is taken as its digits.
        place: the place of the record.
        default: returned where the field is missing or null; without it the field is required.

    Raises:
        ValueError: the field is missing or of another kind.
    """
    value = record.get(name)
    if value is None:
        if default is ...:
            raise (place / name).error("missing")
        return default
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, kind):
        raise (place / name).error(f"must be {_KIND[kind]}, not {json.dumps(value)[:40]}")
    return _well_formed(value) if kind is str else value


def _well_formed(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def records(record: Json, name: str, place: Place) -> Iterator[tuple[Place, Json]]:
    """The objects of a list field, each with its place; none where the field is missing.

    Raises:
        ValueError: the field is not a list of objects.
    """
    for index, value in enumerate(field(record, name, list, place, [])):
        if not isinstance(value, dict):
            raise (place / name / index).error(f"must be an object, not {json.dumps(value)[:40]}")
        yield place / name / index, value


def read_conversations(path: str | Path) -> list[Conversation]:
    """Conversations from a JSON Lines file in the project's format.

    Two conversations with one id both stay: the second is renamed ``id#2`` and a warning names it.

    Raises:
        ValueError: a line, field or pool name is wrong; the message names file, line and field.
    """
    pools: dict[str, tuple[Evidence, ...]] = {}
    conversations: list[Conversation] = []
    unknown: Counter[str] = Counter()
    for place, record in iter_lines(path):
        unknown.update(_unknown_fields(record))
        if "turns" not in record and "pool" in record:
            pools[field(record, "pool", str, place)] = parse_pool(record, place)
        else:
            conversations.append(_parse_conversation(record, place, pools))
    if not conversations:
        raise ValueError(f"{path}: no conversation in it")
    if unknown:
        names = ", ".join(f"{name} ({count} times)" for name, count in unknown.most_common(5))
        logger.warning("%s: unknown fields are not read: %s", path, names)
    bare = sum(not c.evidence and not any(t.evidence for t in c.turns) for c in conversations)
    if bare:
        logger.warning(
            "%s: %d of %d conversations have no evidence", path, bare, len(conversations)
        )
    ids = unique_ids([c.id for c in conversations], f"{path}: conversation")
    return [
        c if c.id == new else Conversation(new, c.domain, c.turns, c.evidence)
        for c, new in zip(conversations, ids, strict=True)
    ]


def _unknown_fields(record: Json) -> Iterator[str]:
    """Names of fields of a conversation and its turns that the format has not got."""
    yield from record.keys() - CONVERSATION_FIELDS
    turns = record.get("turns")
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict):
            yield from (f"turns.{name}" for name in turn.keys() - TURN_FIELDS)


def unique_ids(ids: list[str], what: str) -> list[str]:
    """The ids, a repeated one with ``#2``, ``#3`` behind it; a warning names the repeated ones."""
    taken, seen, repeated, result = set(ids), {}, {}, []
    for id_ in ids:
        seen[id_] = seen.get(id_, 0) + 1
        new = id_
        if seen[id_] > 1:
            repeated[id_] = seen[id_]
            while (new := f"{id_}#{seen[id_]}") in taken:
                seen[id_] += 1
            taken.add(new)
        result.append(new)
    if repeated:
        names = ", ".join(f"{id_!r} ({count} times)" for id_, count in list(repeated.items())[:5])
        logger.warning("%s ids that occur more than once: %s; renamed with #2, #3", what, names)
    return result


def _parse_conversation(
    record: Json, place: Place, pools: dict[str, tuple[Evidence, ...]]
) -> Conversation:
    id_ = field(record, "id", str, place)
    turns = [
        _parse_turn(turn, at, i) for i, (at, turn) in enumerate(records(record, "turns", place))
    ]
    if not turns:
        raise (place / "turns").error("a conversation needs at least one turn")
    names = unique_ids([turn.id for turn in turns], f"{place.path}: conversation {id_}: turn")
    turns = [
        Turn(n, t.question, t.answers, t.source, t.evidence)
        for n, t in zip(names, turns, strict=True)
    ]
    shared: tuple[Evidence, ...] = ()
    if (pool := field(record, "pool", str, place, None)) is not None:
        if pool not in pools:
            raise (place / "pool").error(f"no pool {pool!r} above this line")
        shared = pools[pool]
    own = parse_pool(record, place)
    return Conversation(
        id=id_,
        domain=field(record, "domain", str, place, ""),
        turns=tuple(turns),
        evidence=join_pools(shared, own),
    )


def join_pools(*pools: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """One pool out of several with distinct ids; a single non-empty pool is returned as it is."""
    filled = [pool for pool in pools if pool]
    if len(filled) <= 1:
        return filled[0] if filled else ()
    taken, joined = set(), []
    for piece in (piece for pool in filled for piece in pool):
        new = piece.id
        while new in taken:
            new += "'"
        taken.add(new)
        same = new == piece.id
        joined.append(piece if same else Evidence(new, piece.text, piece.source, piece.entities))
    return tuple(joined)


def _parse_turn(record: Json, place: Place, index: int) -> Turn:
    question = field(record, "question", str, place)
    if not question.strip():
        raise (place / "question").error("empty: a turn needs a question")
    answers = tuple(
        Answer(field(answer, "label", str, at), field(answer, "id", str, at, None))
        for at, answer in records(record, "answers", place)
    )
    return Turn(
        id=field(record, "id", str, place, str(index)),
        question=question,
        answers=answers,
        source=field(record, "source", str, place, None),
        evidence=parse_pool(record, place),
    )


def parse_pool(record: Json, place: Place) -> tuple[Evidence, ...]:
    """The field ``evidence`` of a record as a pool; a piece without id gets its position.

    Raises:
        ValueError: a piece has no text, an unknown source or a malformed entity.
    """
    pieces = [
        parse_evidence(r, at, str(i))
        for i, (at, r) in enumerate(records(record, "evidence", place))
    ]
    ids = unique_ids([piece.id for piece in pieces], f"{place.path}: evidence")
    return tuple(
        Evidence(i, p.text, p.source, p.entities) for i, p in zip(ids, pieces, strict=True)
    )


def parse_evidence(record: Json, place: Place, default_id: str) -> Evidence:
    """One piece of evidence; an entity without id is known by its label.

    Raises:
        ValueError: text or source is missing or wrong, or an entity is malformed.
    """
    source = field(record, "source", str, place, "text")
    if source not in SOURCES:
        raise (place / "source").error(f"must be one of {', '.join(SOURCES)}, not {source!r}")
    entities: dict[str, Entity] = {}
    for at, value in records(record, "entities", place):
        entity = _parse_entity(value, at)
        entities.setdefault(entity.id, entity)
    return Evidence(
        id=field(record, "id", str, place, default_id),
        text=field(record, "text", str, place),
        source=source,
        entities=tuple(entities.values()),
    )


def _parse_entity(record: Json, place: Place) -> Entity:
    label = field(record, "label", str, place)
    mentions = field(record, "mentions", list, place, [])
    for index, mention in enumerate(mentions):
        if not isinstance(mention, str):
            raise (place / "mentions" / index).error("must be a string")
    mentions = tuple(map(_well_formed, mentions))
    return Entity(field(record, "id", str, place, label), label, mentions)


def read_pool(path: str | Path) -> tuple[Evidence, ...]:
    """An evidence pool from a file with one piece of evidence a line.

    Raises:
        ValueError: a line or field is wrong; the message names file, line and field.
    """
    pieces = [parse_evidence(r, place, str(i)) for i, (place, r) in enumerate(iter_lines(path))]
    ids = unique_ids([piece.id for piece in pieces], f"{path}: evidence")
    return tuple(
        Evidence(i, p.text, p.source, p.entities) for i, p in zip(ids, pieces, strict=True)
    )


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[str]]:
    """A text file for writing that appears under its name only when all of it is written.

    Raises:
        ValueError: a folder has that name, or nothing may be written there.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial{os.getpid()}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        file = partial.open("w", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def dump(value: Json) -> str:
    """One line of JSON Lines, without its end."""
    return json.dumps(value, ensure_ascii=False)


def write_conversations(path: str | Path, conversations: Iterable[Conversation]) -> None:
    """Write conversations; a pool that several share (one tuple) is written once, as a pool line.

    Raises:
        OSError: the file cannot be written; nothing is left half-written.
    """
    conversations = list(conversations)
    users: dict[int, int] = {}
    for conversation in conversations:
        users[id(conversation.evidence)] = users.get(id(conversation.evidence), 0) + 1
    names: dict[int, str] = {}
    with whole_file(path) as file:
        for conversation in conversations:
            pool, key = conversation.evidence, id(conversation.evidence)
            if pool and users[key] > 1 and key not in names:
                names[key] = f"pool-{len(names)}"
                file.write(
                    dump({"pool": names[key], "evidence": [to_json(e) for e in pool]}) + "\n"
                )
            file.write(dump(_conversation_json(conversation, names.get(key))) + "\n")


def write_pool(path: str | Path, pieces: Iterable[Evidence]) -> None:
    """Write an evidence pool, one piece a line."""
    with whole_file(path) as file:
        for piece in pieces:
            file.write(dump(to_json(piece)) + "\n")


def to_json(piece: Evidence) -> Json:
    """A piece of evidence as the JSON object that ``parse_evidence`` reads."""
    entities = [
        {"id": e.id, "label": e.label} | ({"mentions": list(e.mentions)} if e.mentions else {})
        for e in piece.entities
    ]
    return {"id": piece.id, "text": piece.text, "source": piece.source, "entities": entities}


def _conversation_json(conversation: Conversation, pool: str | None) -> Json:
    record: Json = {"id": conversation.id, "domain": conversation.domain}
    if pool is not None:
        record["pool"] = pool
    record["turns"] = [_turn_json(turn) for turn in conversation.turns]
    if pool is None and conversation.evidence:
        record["evidence"] = [to_json(piece) for piece in conversation.evidence]
    return record


def _turn_json(turn: Turn) -> Json:
    answers = [
        {"label": a.label} | ({"id": a.id} if a.id is not None else {}) for a in turn.answers
    ]
    record: Json = {"id": turn.id, "question": turn.question, "answers": answers}
    if turn.source is not None:
        record["source"] = turn.source
    if turn.evidence:
        record["evidence"] = [to_json(piece) for piece in turn.evidence]
    return record
