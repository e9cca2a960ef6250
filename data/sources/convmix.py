"""Reads ConvMix and CompMix, and the evidence that CONVINSE and EXPLAIGNN write beside them.

JSON and JSON Lines are recognised by content, not by the file's name:

    questions   conversations ``{conv_id, domain, questions: [...]}`` (ConvMix), or single
                questions ``{question_id, question, answers, ...}`` (CompMix), one turn each
    evidence    the same conversations or questions with their passages in ``top_evidences``, or an
                object ``{question_id: [passages]}``

Variants in real files: ``info`` for infobox; literal ``\\uXXXX`` escapes inside labels;
dates and numbers with quotes inside id, label and text (the quotes in ``"+3000000"`` are
characters of the id); ``retrieved_for_entity`` as an object or a list, often with only an id;
mentions that the tool could not link (``null`` or ``false`` for an id).
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.json_fields import Json, Location, iter_lines, parse_json, records, shown
from turngraph.data.json_fields import field as get
from turngraph.data.jsonlines import unique_ids, write_conversations
from turngraph.data.normalise import fold
from turngraph.data.types import SOURCES, Answer, Conversation, Entity, Evidence, Source, Turn

logger = logging.getLogger(__name__)

SOURCE_NAMES = {"info": "infobox"}
EVIDENCE_FIELDS = ("top_evidences", "top_evidence", "evidences")
NAMED_IDS = 5
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")

Pool = dict[tuple[str, str], Evidence]
"""Passages by (source, text), in the order in which they were read."""


@dataclass
class _Reading:
    """Passages by question, and the counts for the report."""

    pools: dict[str, Pool] = field(default_factory=dict)
    entities: dict[Entity, Entity] = field(default_factory=dict)
    num_repeated: int = 0
    unmatched: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)

    @property
    def num_read(self) -> int:
        """Number of passages read, repeated ones included."""
        return sum(map(len, self.pools.values())) + self.num_repeated


def decode_escapes(text: str) -> str:
    """Decode literal ``\\uXXXX`` escapes in a text, surrogate pairs included.

    A surrogate without its partner becomes the replacement character.
    """

    def decode(match: re.Match[str]) -> str:
        units = bytes.fromhex(match[0].replace("\\u", ""))
        return units.decode("utf-16-be", "replace")

    return _ESCAPES.sub(decode, text)


def iter_records(path: str | Path) -> Iterator[tuple[Location, Json]]:
    """Yield the objects of a JSON list or of JSON Lines, or the one object of a JSON file.

    JSON Lines are read line by line, never all at once.

    Raises:
        UserError: the file is missing, not UTF-8, not JSON, or holds anything but objects.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    if _is_lines(path):
        yield from iter_lines(path)
        return
    content = _load(path)
    for index, record in enumerate(content if isinstance(content, list) else [content]):
        location = Location(path) / index if isinstance(content, list) else Location(path)
        if not isinstance(record, dict):
            raise location.error(f"must be an object, not {shown(record)}")
        yield location, record


def _is_lines(path: str | Path) -> bool:
    """Return whether the first line that is not blank is a complete JSON object."""
    with open(path, "rb") as file:
        first = next((line for line in file if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")
    if not first.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):  # a value over several lines, or what iter_lines refuses
        return first.rstrip().endswith(b"}")
    return True


def _load(path: str | Path) -> object:
    raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Location(path, line).error(f"not UTF-8 at byte {error.start + 1}") from None
    loaded: object = parse_json(text, Location(path))
    return loaded


def parse_passage(record: Json, location: Location) -> Evidence:
    """Parse one passage of CONVINSE or EXPLAIGNN; its id is "" if it has none.

    The entities are those of ``wikidata_entities``, then others that ``disambiguations`` links,
    then the entity that the passage was retrieved for, if its text names it.

    Raises:
        UserError: text or source is missing or wrong, or an entity or a mention is malformed.
    """
    text = decode_escapes(get(record, "evidence_text", str, location))
    labels: dict[str, str] = {}
    mentions = _mentions(record, location)
    for raw_id, raw_label in _entities(record, "wikidata_entities", location):
        id_, label = _unquote_id(raw_id), _unquote_label(raw_label, raw_id)
        text = text.replace(raw_label, label)
        has_label = label != id_ or id_ not in mentions  # an id as label: the tool had no label
        labels.setdefault(id_, label if has_label else mentions[id_][0])
    for id_, names in mentions.items():
        labels.setdefault(id_, names[0])
    for id_, label in _retrieved_for(record, location):
        if fold(label) in fold(text):
            labels.setdefault(id_, label)
    return Evidence(
        id=get(record, "id", str, location, ""),
        text=text,
        source=_source(record, location),
        entities=tuple(
            Entity(id_, label, tuple(m for m in mentions.get(id_, ()) if m != label))
            for id_, label in labels.items()
            if label.strip()
        ),
    )


def _source(record: Json, location: Location) -> Source:
    name = get(record, "source", str, location)
    source = next((s for s in SOURCES if s == SOURCE_NAMES.get(name, name)), None)
    if source is None:
        known = ", ".join((*SOURCES, *SOURCE_NAMES))
        raise (location / "source").error(f"must be one of {known}, not {name!r}")
    return source


def _unquote_id(id_: str) -> str:
    """Remove the quotes and the plus of Wikidata's dates and numbers; keep other ids."""
    return _unquote_label(id_, id_)


def _unquote_label(label: str, id_: str) -> str:
    """Remove such quotes from the label of a date or number; keep the quotes of a title."""
    return label.replace('"', "").removeprefix("+") if id_.startswith('"') else label


def _entities(record: Json, name: str, location: Location) -> Iterator[tuple[str, str]]:
    """Yield (id, label) of each entity; one that has only one of them uses it for both."""
    for at, entity in records(record, name, location):
        id_ = None if entity.get("id") is False else get(entity, "id", str, at, None)
        named = get(entity, "label", str, at) if id_ is None else get(entity, "label", str, at, id_)
        if label := decode_escapes(named):
            yield label if id_ is None else id_, label


def _mentions(record: Json, location: Location) -> dict[str, list[str]]:
    """Return the names under which the text mentions each linked id; others are left out."""
    mentions: dict[str, list[str]] = {}
    for index, pair in enumerate(get(record, "disambiguations", list, location, [])):
        at = location / "disambiguations" / index
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise at.error(f"must be [mention, id], not {shown(pair)}")
        if pair[1] is None or pair[1] is False or not pair[0].strip():
            continue
        id_ = get({"id": pair[1]}, "id", str, at)
        mention = decode_escapes(get({"mention": pair[0]}, "mention", str, at))
        mention = _unquote_label(mention, id_)
        names = mentions.setdefault(_unquote_id(id_), [])
        if mention not in names:
            names.append(mention)
    return mentions


def _retrieved_for(record: Json, location: Location) -> list[tuple[str, str]]:
    """Return the entities (not properties) with a label that the passage was retrieved for."""
    given = record.get("retrieved_for_entity")
    given = [given] if isinstance(given, dict) else given
    entities = _entities({"retrieved_for_entity": given}, "retrieved_for_entity", location)
    return [(i, label) for i, label in entities if i != label and not re.fullmatch(r"P\d+", i)]


def read_convmix(questions: str | Path, evidence: Sequence[str | Path] = ()) -> list[Conversation]:
    """Read a ConvMix or CompMix file as conversations, each turn with its own evidence pool.

    A passage keeps its id; one without an id gets its position in the conversation, so that the
    same passage at two turns has one id. Equal passages (source and text) of a question are merged.

    Args:
        questions: the benchmark file; evidence in it is read, too.
        evidence: files of the CONVINSE or EXPLAIGNN tools; a question's passages are joined.

    Raises:
        UserError: a record or field is wrong (the message names file, line or record, and field),
            or no question of the evidence occurs among the questions.
    """
    reading = _Reading()
    conversations = [_conversation(r, at, reading) for at, r in iter_records(questions)]
    if not conversations:
        raise UserError(f"{questions}: no conversation in it")
    wanted = {turn.id for conversation in conversations for turn in conversation.turns}
    for path in evidence:
        before, others = reading.num_read, len(reading.unmatched)
        _read_evidence(path, wanted, reading)
        if reading.num_read == before and (unmatched := reading.unmatched[others:]):
            raise UserError(f"{path}: none of its questions ({_some(unmatched)}) is in {questions}")
        if reading.num_read == before:
            known = " or ".join(EVIDENCE_FIELDS)
            raise UserError(f"{path}: no passage in it, in a field {known}")
    _report(conversations, reading)
    ids = unique_ids([c.id for c in conversations], f"{questions}: conversation")
    return [
        replace(_with_evidence(conversation, reading), id=id_)
        for conversation, id_ in zip(conversations, ids, strict=True)
    ]


def _conversation(record: Json, location: Location, reading: _Reading) -> Conversation:
    if "questions" not in record:
        turns = [_turn(record, location, reading)]
        id_ = turns[0].id
    else:
        id_ = _conversation_id(record, location)
        listed = records(record, "questions", location)
        order = [(_position(turn, at, i), at, turn) for i, (at, turn) in enumerate(listed)]
        order.sort(key=lambda item: item[0])
        turns = [_turn(turn, at, reading) for _, at, turn in order]
    if not turns:
        raise (location / "questions").error("a conversation needs at least one question")
    return Conversation(id_, get(record, "domain", str, location, ""), tuple(turns))


def _conversation_id(record: Json, location: Location) -> str:
    name = "conversation_id" if "conversation_id" in record else "conv_id"
    return get(record, name, str, location)


def _position(record: Json, location: Location, index: int) -> int:
    position = record.get("turn", index)
    if not isinstance(position, int) or isinstance(position, bool):
        raise (location / "turn").error(f"must be a whole number, not {shown(position)}")
    return position


def _turn(record: Json, location: Location, reading: _Reading) -> Turn:
    id_ = get(record, "question_id", str, location)
    question = get(record, "question", str, location)
    if not question.strip():
        raise (location / "question").error("empty: a turn needs a question")
    answers = []
    for at, answer in records(record, "answers", location):
        raw_id = get(answer, "id", str, at, None)
        label = _unquote_label(decode_escapes(get(answer, "label", str, at)), raw_id or "")
        if not label.strip():
            reading.blank.append(id_)
            continue
        answers.append(Answer(label, raw_id and _unquote_id(raw_id)))
    source = get(record, "answer_src", str, location, "") or None
    _add_passages(id_, record, location, reading)
    return Turn(id_, question, tuple(answers), source and SOURCE_NAMES.get(source, source))


def _read_evidence(path: str | Path, wanted: Collection[str], reading: _Reading) -> None:
    lines = track(iter_records(path), Path(path).name, "records", delay=2)
    for location, record in lines:
        for at, turn in _evidence_turns(record, location):
            id_ = get(turn, "question_id", str, at)
            if id_ in wanted:
                _add_passages(id_, turn, at, reading)
            else:
                reading.unmatched.append(id_)


def _evidence_turns(record: Json, location: Location) -> Iterator[tuple[Location, Json]]:
    if "questions" in record:
        yield from records(record, "questions", location)
    elif "question_id" in record:
        yield location, record
    elif "evidence_text" in record:
        raise (location / "question_id").error("missing: a passage must name its question")
    else:
        for id_, passages in record.items():
            yield location / id_, {"question_id": id_, EVIDENCE_FIELDS[0]: passages}


def _add_passages(question_id: str, record: Json, location: Location, reading: _Reading) -> None:
    names = [name for name in EVIDENCE_FIELDS if name in record]
    if not names:
        return
    name = next((name for name in names if record[name]), names[0])
    pool = reading.pools.setdefault(question_id, {})
    for at, value in records(record, name, location):
        passage = parse_passage(value, at)
        known = pool.get((passage.source, passage.text))
        reading.num_repeated += known is not None
        entities = {e.id: e for e in (*(known.entities if known else ()), *passage.entities)}
        shared = tuple(reading.entities.setdefault(e, e) for e in entities.values())
        pool[passage.source, passage.text] = replace(known or passage, entities=shared)


def _with_evidence(conversation: Conversation, reading: _Reading) -> Conversation:
    """Return the conversation with its pools; equal passages of its turns are one object."""
    what = f"conversation {conversation.id}"
    positions: dict[tuple[str, str], str] = {}
    same: dict[Evidence, Evidence] = {}
    turns = []
    names = unique_ids([turn.id for turn in conversation.turns], f"{what}: turn")
    for turn, name in zip(conversation.turns, names, strict=True):
        pool = reading.pools.get(turn.id, {})
        ids = [p.id or positions.setdefault(k, str(len(positions))) for k, p in pool.items()]
        ids = unique_ids(ids, f"{what}: evidence")
        passages = [replace(p, id=i) for i, p in zip(ids, pool.values(), strict=True)]
        evidence = tuple(same.setdefault(passage, passage) for passage in passages)
        turns.append(replace(turn, id=name, evidence=evidence))
    return replace(conversation, turns=tuple(turns))


def _report(conversations: Sequence[Conversation], reading: _Reading) -> None:
    questions = [turn.id for conversation in conversations for turn in conversation.turns]
    sources = Counter(
        passage.source for pool in reading.pools.values() for passage in pool.values()
    )
    shares = ", ".join(f"{count} {source}" for source, count in sorted(sources.items()))
    counts = (plural(len(conversations), "conversation"), plural(len(questions), "question"))
    logger.info("%s, %s", *counts)
    logger.info(
        "%s (%s); repeated: %d",
        plural(sources.total(), "passage"),
        shares or "none",
        reading.num_repeated,
    )
    twice = [id_ for id_, count in Counter(questions).items() if count > 1]
    bare = [id_ for id_ in questions if not reading.pools.get(id_)]
    _warn("question ids that occur more than once", twice)
    _warn("questions without evidence", bare if reading.pools else [])
    _warn("questions with a gold answer of no words, which is left out", reading.blank)
    _warn("questions in the evidence that are not among the questions", reading.unmatched)


def _warn(what: str, ids: Sequence[str]) -> None:
    if ids:
        logger.warning("%s: %d: %s", what, len(ids), _some(ids))


def _some(ids: Iterable[str]) -> str:
    ids = list(ids)
    return ", ".join(ids[:NAMED_IDS]) + (", ..." if len(ids) > NAMED_IDS else "")


def main(argv: Sequence[str] | None = None) -> None:
    """Convert ConvMix or CompMix with its evidence files to the project's JSON Lines.

    Raises:
        UserError: a file is missing or malformed.
    """
    description = (main.__doc__ or "").split("\n", 1)[0]
    parser = CommandParser(prog="python -m turngraph.data.sources.convmix", description=description)
    parser.add_argument("--questions", required=True, metavar="FILE")
    parser.add_argument("--evidence", nargs="+", default=[], metavar="FILE", action="extend")
    parser.add_argument("--output", required=True, metavar="OUT.jsonl")
    args = parser.parse_args(argv)
    write_conversations(args.output, read_convmix(args.questions, args.evidence))
    logger.info("written to %s", args.output)


if __name__ == "__main__":
    run_cli(main)
