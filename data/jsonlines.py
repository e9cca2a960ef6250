"""Reads conversations and evidence pools from JSON Lines with checks, and writes them.

A conversation file holds one conversation a line. Conversations over the same page can share it:
a line ``{"pool": ID, "evidence": [...]}`` gives the pool, and a conversation below it names it by
``"pool": ID``. A pool file holds one passage a line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.json_fields import (
    Json,
    Location,
    UnknownFields,
    field,
    iter_lines,
    parse_line,
    raw_lines,
    records,
    well_formed,
)
from turngraph.data.outputs import whole_file
from turngraph.data.types import SOURCES, Answer, Conversation, Entity, Evidence, Turn
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

FIELDS = {
    "": {"id", "domain", "turns", "evidence", "pool"},
    "turns": {"id", "question", "answers", "source", "evidence"},
    "answers": {"id", "label"},
    "evidence": {"id", "text", "source", "entities"},
    "entities": {"id", "label", "mentions"},
}
"""Known fields of a conversation and of the objects in it."""
_NESTED = {name for name, fields in FIELDS.items() if fields & FIELDS.keys()}


class BadLine(NamedTuple):
    """A line that could not be read.

    Args:
        position: number of conversations before it.
        error: fields ``line``, its number, and ``error``, the reason.
        record: its content, if it is a JSON object.
    """

    position: int
    error: Json
    record: Json | None


def read_conversations(
    path: str | Path, bad_lines: list[BadLine] | None = None
) -> list[Conversation]:
    """Read conversations from a JSON Lines file in the project's format.

    Conversations with equal ids are both kept: the second becomes ``id#2``, with a warning.

    Args:
        path: path of the file.
        bad_lines: list that receives the lines that cannot be read; None: they raise.

    Raises:
        UserError: a line, field or pool name is wrong; the message names file, line and field.
    """
    pools: dict[str, tuple[Evidence, ...]] = {}
    conversations: list[Conversation] = []
    unknown = UnknownFields()
    for location, raw in raw_lines(path):
        record = None
        try:
            if (record := parse_line(raw, location)) is None:
                continue
            _add_unknown(unknown, record, location)
            if "turns" not in record and "pool" in record:
                pools[field(record, "pool", str, location)] = parse_pool(record, location)
            else:
                conversations.append(_parse_conversation(record, location, pools))
        except UserError as error:
            if bad_lines is None:
                raise
            logger.warning("%s", error)
            bad = {"line": location.line, "error": str(error)}
            bad_lines.append(BadLine(len(conversations), bad, record))
    if not conversations and not bad_lines:
        raise UserError(f"{path}: no conversation in it")
    unknown.warn()
    bare = sum(not c.evidence and not any(t.evidence for t in c.turns) for c in conversations)
    if bare:
        logger.warning(
            "%s: no evidence in %d of %s", path, bare, plural(len(conversations), "conversation")
        )
    ids = unique_ids([c.id for c in conversations], f"{path}: conversation")
    return [
        c if c.id == new else Conversation(new, c.domain, c.turns, c.evidence)
        for c, new in zip(conversations, ids, strict=True)
    ]


def _add_unknown(unknown: UnknownFields, record: Json, location: Location, what: str = "") -> None:
    """Add the fields of a record, and of the objects in it, that the format does not have."""
    unknown.add(record, FIELDS[what], location)
    for name in sorted(record.keys() & FIELDS[what] & FIELDS.keys()):
        inner = record[name]
        for index, value in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(value, dict) and (name in _NESTED or not value.keys() <= FIELDS[name]):
                _add_unknown(unknown, value, location / name / index, name)


def unique_ids(ids: list[str], what: str) -> list[str]:
    """Return ids made unique by ``#2``, ``#3`` and so on; a warning names repeated ones."""
    taken, unique = set(ids), list[str]()
    seen: dict[str, int] = {}
    repeated: dict[str, int] = {}
    for id_ in ids:
        seen[id_] = seen.get(id_, 0) + 1
        new = id_
        if seen[id_] > 1:
            repeated[id_] = seen[id_]
            while (new := f"{id_}#{seen[id_]}") in taken:
                seen[id_] += 1
            taken.add(new)
        unique.append(new)
    if repeated:
        names = ", ".join(f"{id_!r} ({count} times)" for id_, count in list(repeated.items())[:5])
        logger.warning("%s ids that occur more than once: %s; renamed with #2, #3", what, names)
    return unique


def _parse_conversation(
    record: Json, location: Location, pools: dict[str, tuple[Evidence, ...]]
) -> Conversation:
    id_ = field(record, "id", str, location)
    turns = [
        _parse_turn(turn, at, i) for i, (at, turn) in enumerate(records(record, "turns", location))
    ]
    if not turns:
        raise (location / "turns").error("a conversation needs at least one turn")
    names = unique_ids([turn.id for turn in turns], f"{location.path}: conversation {id_}: turn")
    turns = [
        Turn(n, t.question, t.answers, t.source, t.evidence)
        for n, t in zip(names, turns, strict=True)
    ]
    shared: tuple[Evidence, ...] = ()
    if (pool := field(record, "pool", str, location, None)) is not None:
        if pool not in pools:
            raise (location / "pool").error(f"no pool {pool!r} above this line")
        shared = pools[pool]
    own_pool = parse_pool(record, location)
    return Conversation(
        id=id_,
        domain=field(record, "domain", str, location, ""),
        turns=tuple(turns),
        evidence=join_pools(shared, own_pool),
    )


def join_pools(*pools: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Join several pools into one with distinct ids; a single non-empty pool is returned as is.

    A passage of several pools is in it once, with the entities of all.
    """
    filled = [pool for pool in pools if pool]
    if len(filled) <= 1:
        return filled[0] if filled else ()
    taken: set[str] = set()
    joined: dict[tuple[str, str, int], Evidence] = {}
    for passage, repeat in (pair for pool in filled for pair in _counted(pool)):
        key = passage.source, passage.text, repeat
        if (known := joined.get(key)) is not None:
            entities = {entity.id: entity for entity in (*passage.entities, *known.entities)}
            if len(entities) > len(known.entities):
                joined[key] = Evidence(known.id, known.text, known.source, tuple(entities.values()))
            continue
        new = passage.id
        while new in taken:
            new += "'"
        taken.add(new)
        same = new == passage.id
        joined[key] = (
            passage if same else Evidence(new, passage.text, passage.source, passage.entities)
        )
    return tuple(joined.values())


def _counted(pool: tuple[Evidence, ...]) -> Iterator[tuple[Evidence, int]]:
    """Yield each passage with the number of its earlier occurrences in the pool."""
    times: Counter[tuple[str, str]] = Counter()
    for passage in pool:
        yield passage, times[passage.source, passage.text]
        times[passage.source, passage.text] += 1


def _parse_turn(record: Json, location: Location, index: int) -> Turn:
    question = field(record, "question", str, location)
    if not question.strip():
        raise (location / "question").error("empty: a turn needs a question")
    answers = tuple(
        Answer(_label(answer, at), field(answer, "id", str, at, None))
        for at, answer in records(record, "answers", location)
    )
    return Turn(
        id=field(record, "id", str, location, str(index)),
        question=question,
        answers=answers,
        source=field(record, "source", str, location, None),
        evidence=parse_pool(record, location),
    )


def parse_pool(record: Json, location: Location) -> tuple[Evidence, ...]:
    """Parse the field ``evidence`` of a record; a passage without id gets its position.

    Raises:
        UserError: a passage has no text, an unknown source or a malformed entity.
    """
    return _pool(records(record, "evidence", location), location.path)


def _pool(passages: Iterable[tuple[Location, Json]], path: str | Path) -> tuple[Evidence, ...]:
    """Return passages with distinct ids."""
    parsed = [parse_evidence(r, location, str(i)) for i, (location, r) in enumerate(passages)]
    ids = unique_ids([passage.id for passage in parsed], f"{path}: evidence")
    return tuple(
        Evidence(i, p.text, p.source, p.entities) for i, p in zip(ids, parsed, strict=True)
    )


def parse_evidence(record: Json, location: Location, default_id: str) -> Evidence:
    """Parse one passage; an entity without id is known by its label.

    Raises:
        UserError: text or source is missing or wrong, or an entity is malformed.
    """
    name = field(record, "source", str, location, "text")
    source = next((known for known in SOURCES if known == name), None)
    if source is None:
        raise (location / "source").error(f"must be one of {', '.join(SOURCES)}, not {name!r}")
    entities: dict[str, Entity] = {}
    for at, value in records(record, "entities", location):
        entity = _parse_entity(value, at)
        entities.setdefault(entity.id, entity)
    return Evidence(
        id=field(record, "id", str, location, default_id),
        text=field(record, "text", str, location),
        source=source,
        entities=tuple(entities.values()),
    )


def _label(record: Json, location: Location) -> str:
    """Read the label of an answer or an entity."""
    label = field(record, "label", str, location)
    if not label.strip():
        raise (location / "label").error("empty: an answer or an entity needs a name")
    return label


def _parse_entity(record: Json, location: Location) -> Entity:
    label = _label(record, location)
    mentions = []
    for index, mention in enumerate(field(record, "mentions", list, location, [])):
        if not isinstance(mention, str):
            raise (location / "mentions" / index).error("must be a string")
        mentions.append(well_formed(mention))
    return Entity(field(record, "id", str, location, label), label, tuple(mentions))


def read_pool(path: str | Path) -> tuple[Evidence, ...]:
    """Read an evidence pool from a file with one passage a line.

    Raises:
        UserError: a line or field is wrong; the message names file, line and field.
    """
    unknown = UnknownFields()

    def seen() -> Iterator[tuple[Location, Json]]:
        for location, record in iter_lines(path):
            _add_unknown(unknown, record, location, "evidence")
            yield location, record

    pool = _pool(seen(), path)
    unknown.warn()
    return pool


def dump(value: Json) -> str:
    """Write a value as one line of JSON Lines, without the line break.

    Raises:
        ValueError: a number is NaN or infinite, which no reader of JSON has to take.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError(f"a number is not finite in: {str(value)[:200]}") from None


def write_conversations(
    path: str | Path, conversations: Iterable[Conversation], private: bool = False
) -> None:
    """Write conversations; a pool that several share (one tuple) is written once, as a pool line.

    Args:
        path: path of the file.
        conversations: in the order of their lines.
        private: only its owner may read a new file.

    Raises:
        UserError: the file cannot be written; no partial file is left.
    """
    conversations = list(conversations)
    users: dict[int, int] = {}
    for conversation in conversations:
        users[id(conversation.evidence)] = users.get(id(conversation.evidence), 0) + 1
    names: dict[int, str] = {}
    with whole_file(path, private) as file:
        for conversation in conversations:
            pool, key = conversation.evidence, id(conversation.evidence)
            if pool and users[key] > 1 and key not in names:
                names[key] = f"pool-{len(names)}"
                file.write(
                    dump({"pool": names[key], "evidence": [to_json(e) for e in pool]}) + "\n"
                )
            file.write(dump(_conversation_json(conversation, names.get(key))) + "\n")


def write_pool(path: str | Path, passages: Iterable[Evidence]) -> None:
    """Write an evidence pool, one passage a line."""
    with whole_file(path) as file:
        for passage in passages:
            file.write(dump(to_json(passage)) + "\n")


def to_json(passage: Evidence) -> Json:
    """Return a passage as the JSON object that ``parse_evidence`` reads."""
    entities = [
        {"id": e.id, "label": e.label} | ({"mentions": list(e.mentions)} if e.mentions else {})
        for e in passage.entities
    ]
    return {"id": passage.id, "text": passage.text, "source": passage.source, "entities": entities}


def _conversation_json(conversation: Conversation, pool: str | None) -> Json:
    record: Json = {"id": conversation.id, "domain": conversation.domain}
    if pool is not None:
        record["pool"] = pool
    record["turns"] = [_turn_json(turn) for turn in conversation.turns]
    if pool is None and conversation.evidence:
        record["evidence"] = [to_json(passage) for passage in conversation.evidence]
    return record


def _turn_json(turn: Turn) -> Json:
    answers = [
        {"label": a.label} | ({"id": a.id} if a.id is not None else {}) for a in turn.answers
    ]
    record: Json = {"id": turn.id, "question": turn.question, "answers": answers}
    if turn.source is not None:
        record["source"] = turn.source
    if turn.evidence:
        record["evidence"] = [to_json(passage) for passage in turn.evidence]
    return record
