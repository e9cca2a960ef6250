"""Conversations and pools as JSON Lines: round trips, shared pools, and one clear error each."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.jsonlines import (
    dump,
    join_pools,
    read_conversations,
    read_pool,
    unique_ids,
    write_conversations,
    write_pool,
)
from turngraph.data.types import SOURCES, Answer, Conversation, Entity, Evidence, Turn

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
QUESTIONS = TEXTS.filter(lambda text: bool(text.strip()))
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
ENTITIES = st.builds(Entity, IDS, QUESTIONS, st.lists(TEXTS, max_size=2).map(tuple))
PASSAGES = st.builds(
    Evidence,
    IDS,
    TEXTS,
    st.sampled_from(SOURCES),
    st.lists(ENTITIES, max_size=3, unique_by=lambda entity: entity.id).map(tuple),
)
POOLS = st.lists(PASSAGES, max_size=3, unique_by=lambda passage: passage.id).map(tuple)
ANSWERS = st.lists(st.builds(Answer, QUESTIONS, st.none() | IDS), max_size=3).map(tuple)
TURNS = st.builds(Turn, IDS, QUESTIONS, ANSWERS, st.none() | TEXTS, POOLS)
CONVERSATIONS = st.builds(
    Conversation,
    IDS,
    TEXTS,
    st.lists(TURNS, min_size=1, max_size=3, unique_by=lambda turn: turn.id).map(tuple),
    POOLS,
)

TURN = {"question": "Capital?", "answers": [{"label": "Lima"}]}
PASSAGE = {"text": "Peru, capital, Lima", "source": "kb"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@settings(max_examples=15, deadline=None)
@given(st.lists(CONVERSATIONS, min_size=1, max_size=4, unique_by=lambda c: c.id))
def test_what_is_written_is_read_again(conversations: list[Conversation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conversations.jsonl"
        write_conversations(path, conversations)
        assert read_conversations(path) == conversations
        assert [p.name for p in Path(folder).iterdir()] == [path.name]


@settings(max_examples=30, deadline=None)
@given(POOLS)
def test_a_pool_is_read_again(pool: tuple[Evidence, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_pool(Path(folder) / "pool.jsonl", pool)
        assert read_pool(Path(folder) / "pool.jsonl") == pool


@pytest.mark.parametrize(
    "text", ["日本の首都は？", "क्या", "عاصمة", "👩‍🚀 🇵🇪", "a\u2028b\u0085c\x00"]
)
def test_any_script_stays_as_it_is_and_on_one_line(tmp_path: Path, text: str) -> None:
    conversation = Conversation("c", text, (Turn("0", "?" + text, (Answer(text),)),))
    write_conversations(tmp_path / "c.jsonl", [conversation])
    assert read_conversations(tmp_path / "c.jsonl") == [conversation]
    assert (tmp_path / "c.jsonl").read_bytes().count(b"\n") == 1


def test_a_lone_surrogate_is_replaced_and_can_be_written(tmp_path: Path) -> None:
    entity = {"label": "l", "mentions": ["a\ud800"]}
    turn = {"question": "x \ud83d y", "answers": [{"label": "\udc00"}]}
    passages = [{"text": "t", "entities": [entity]}]
    write(tmp_path / "in.jsonl", conversation(turns=[turn], evidence=passages))
    conversations = read_conversations(tmp_path / "in.jsonl")
    assert conversations[0].turns[0].question == "x ? y"
    assert conversations[0].evidence[0].entities[0].mentions == ("a?",)
    write_conversations(tmp_path / "out.jsonl", conversations)
    assert read_conversations(tmp_path / "out.jsonl") == conversations


def test_a_shared_pool_is_written_once_and_read_as_one_tuple(tmp_path: Path) -> None:
    pool = tuple(Evidence(str(i), f"fact {i}", "kb") for i in range(3))
    other = (Evidence("0", "of its own", "text"),)
    turns = (Turn("0", "Capital?"),)
    conversations = [
        Conversation("a", "", turns, pool),
        Conversation("b", "", turns, other),
        Conversation("c", "", turns, pool),
    ]
    write_conversations(tmp_path / "c.jsonl", conversations)
    assert (tmp_path / "c.jsonl").read_text().count("fact 1") == 1
    a, b, c = read_conversations(tmp_path / "c.jsonl")
    assert [a, b, c] == conversations
    assert a.evidence is c.evidence


def test_a_conversation_joins_a_shared_pool_and_its_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.jsonl",
        {"pool": "p", "evidence": [PASSAGE]},
        {"id": "c", "pool": "p", "turns": [TURN], "evidence": [{"text": "own"}]},
    )
    evidence = read_conversations(path)[0].evidence
    assert [passage.text for passage in evidence] == [PASSAGE["text"], "own"]
    assert len({passage.id for passage in evidence}) == 2


def test_a_passage_of_several_pools_is_read_once() -> None:
    def pool(*entities: str, own: str) -> tuple[Evidence, ...]:
        known = tuple(Entity(name, name) for name in entities)
        return (
            Evidence("0", "Lima is big.", "text", known),
            Evidence("1", "Lima is big.", "text", known),  # twice in one pool: so it was given
            Evidence("2", own, "text"),
            Evidence("3", "Lima is big.", "kb"),
        )

    one, other = pool("Lima", own="a"), pool("Lima", "Peru", own="b")
    joined = join_pools(one, other)
    assert [(p.id, p.text, p.source) for p in joined] == [
        *((p.id, p.text, p.source) for p in one),
        ("2'", "b", "text"),
    ]
    assert {entity.id for entity in joined[0].entities} == {"Lima", "Peru"}
    assert join_pools(one, ()) is one
    assert join_pools(one, one) == one


def test_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = [
        {"id": 7, "turns": [TURN | {"evidence": [{"text": "a"}, PASSAGE]}, {"question": "And?"}]},
    ]
    path.write_text("\ufeff\n" + json.dumps(lines[0]) + "\n\n", encoding="utf-8")
    (conversation,) = read_conversations(path)
    assert (conversation.id, conversation.domain) == ("7", "")
    assert [turn.id for turn in conversation.turns] == ["0", "1"]
    assert conversation.turns[1].answers == ()
    assert [(p.id, p.source) for p in conversation.turns[0].evidence] == [
        ("0", "text"),
        ("1", "kb"),
    ]


def test_an_entity_without_id_is_known_by_its_label_and_kept_once(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl", PASSAGE | {"entities": [{"label": "Lima"}, {"label": "Lima"}]}
    )
    assert read_pool(path)[0].entities == (Entity("Lima", "Lima"),)


def conversation(**fields: object) -> dict[str, object]:
    return {"id": "c", "turns": [TURN]} | fields


BAD = {
    "no id": ({"turns": [TURN]}, "field id: missing"),
    "no turns": ({"id": "c"}, "field turns: a conversation needs at least one turn"),
    "turns not a list": (conversation(turns={}), "field turns: must be a list, not {}"),
    "turn not an object": (conversation(turns=[1]), "field turns[0]: must be an object, not 1"),
    "no question": (
        conversation(turns=[TURN, {"answers": []}]),
        "field turns[1].question: missing",
    ),
    "null for a question": (
        conversation(turns=[{"question": None}]),
        "field turns[0].question: missing",
    ),
    "empty question": (
        conversation(turns=[{"question": "  "}]),
        "field turns[0].question: empty: a turn needs a question",
    ),
    "mistyped question": (
        conversation(turns=[{"question": ["x"]}]),
        'field turns[0].question: must be a string, not ["x"]',
    ),
    "answer without label": (
        conversation(turns=[{"question": "x", "answers": [{"id": "Q1"}]}]),
        "field turns[0].answers[0].label: missing",
    ),
    "answer without words": (
        conversation(turns=[{"question": "x", "answers": [{"label": " "}]}]),
        "field turns[0].answers[0].label: empty: an answer or an entity needs a name",
    ),
    "entity without words": (
        conversation(evidence=[PASSAGE | {"entities": [{"label": ""}]}]),
        "field evidence[0].entities[0].label: empty: an answer or an entity needs a name",
    ),
    "passage without text": (
        conversation(evidence=[PASSAGE, {"source": "kb"}]),
        "field evidence[1].text: missing",
    ),
    "entity without label": (
        conversation(evidence=[PASSAGE | {"entities": [{"label": "A"}, {"id": "Q1"}]}]),
        "field evidence[0].entities[1].label: missing",
    ),
    "unknown source": (
        conversation(turns=[TURN | {"evidence": [PASSAGE | {"source": "wiki"}]}]),
        "field turns[0].evidence[0].source: must be one of kb, text, table, infobox, memory, "
        "not 'wiki'",
    ),
    "mistyped entity": (
        conversation(evidence=[PASSAGE | {"entities": ["Lima"]}]),
        'field evidence[0].entities[0]: must be an object, not "Lima"',
    ),
    "mistyped mention": (
        conversation(evidence=[PASSAGE | {"entities": [{"label": "L", "mentions": [1]}]}]),
        "field evidence[0].entities[0].mentions[0]: must be a string",
    ),
    "no such pool": (conversation(pool="p"), "field pool: no pool 'p' above this line"),
    "not an object": (1, "each line must be a JSON object (JSON Lines); this is no object"),
    "true for an id": (conversation(id=True), "field id: must be a string, not true"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_errors_name_file_line_and_field(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "c.jsonl", conversation(id="good"), line)
    with pytest.raises(ValueError, match="line 2") as error:
        read_conversations(path)
    separator = ", " if message.startswith("field") else ": "
    assert str(error.value) == f"{path}, line 2{separator}{message}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"id": "c",, }', "line 2: not JSON: .* \\(column 12\\)"),
        (
            b'{"id": "c"',
            "line 2: each line must be a whole JSON object .* this line ends within one",
        ),
        (b'{"id": "c",', "line 2: each line must be a whole JSON object"),
        (b"[{", "line 2: each line must be a whole JSON object"),
        (
            b'[{"id": "c"}]',
            r"line 2: each line must be a JSON object \(JSON Lines\); this is an array",
        ),
        (b'{"id": "\xff"}', "line 2: not UTF-8 at byte 9"),
        (b"[" * 100_000, "line 2: not JSON: too deep"),
        (b'{"id": ' + b"9" * 5000 + b"}", "line 2: not JSON: a number has 5000 digits: 999"),
        (b'{"id": 1e999}', "line 2: not JSON: 1e999 is too large a number"),
        (b'{"id": NaN}', "line 2: not JSON: NaN is no number of JSON"),
        (b'{"id": -Infinity}', "line 2: not JSON: -Infinity is no number of JSON"),
    ],
)
def test_a_line_that_is_not_json_is_named(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(json.dumps(conversation()).encode() + b"\n" + raw + b"\n")
    with pytest.raises(ValueError, match=message) as error:
        read_conversations(path)
    assert str(error.value).startswith(str(path))


def test_repeated_ids_are_renamed_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = [TURN | {"id": "t"}, {"id": "t", "question": "And?"}]
    evidence = [PASSAGE | {"id": "e"}, PASSAGE | {"id": "e", "text": "other"}]
    path = write(tmp_path / "c.jsonl", conversation(turns=turns, evidence=evidence), conversation())
    with caplog.at_level(logging.WARNING):
        first, second = read_conversations(path)
    assert [first.id, second.id] == ["c", "c#2"]
    assert [turn.id for turn in first.turns] == ["t", "t#2"]
    assert [(p.id, p.text) for p in first.evidence] == [("e", PASSAGE["text"]), ("e#2", "other")]
    for name in ("'c' (2 times)", "'t' (2 times)", "'e' (2 times)"):
        assert name in caplog.text


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b"]), max_size=8))
def test_unique_ids_are_unique_and_keep_the_first(ids: list[str]) -> None:
    result = unique_ids(ids, "test")
    assert len(set(result)) == len(ids)
    for id_ in set(ids):
        assert result[ids.index(id_)] == id_


def test_nothing_is_half_written(tmp_path: Path) -> None:
    def passages() -> Iterator[Evidence]:
        yield Evidence("0", "written", "text")
        raise RuntimeError("lost power")

    path = tmp_path / "pool.jsonl"
    with pytest.raises(RuntimeError):
        write_pool(path, passages())
    assert list(tmp_path.iterdir()) == []
    write_pool(path, [Evidence("0", "before", "text")])
    with pytest.raises(RuntimeError):
        write_pool(path, passages())
    assert [p.name for p in tmp_path.iterdir()] == ["pool.jsonl"]
    assert read_pool(path)[0].text == "before"


def test_what_is_not_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c.jsonl"
    turn = {"question": "Who?", "answer": "Anna", "answers": [{"label": "A", "lable": "B"}]}
    turn["evidence"] = [{"text": "x", "entites": [], "entities": [{"label": "x", "ids": 1}]}]
    path.write_text(json.dumps({"id": "c", "evidense": [], "turns": [turn, turn]}))
    read_conversations(path)
    where = f"{path}, line 1, field "
    unknown = "unknown and not read; did you mean"
    assert set(caplog.messages) == {
        f"{where}evidense: {unknown} evidence?",
        f"{where}turns[0].answer: {unknown} answers? (2 times)",
        f"{where}turns[0].answers[0].lable: {unknown} label? (2 times)",
        f"{where}turns[0].evidence[0].entites: {unknown} entities? (2 times)",
        f"{where}turns[0].evidence[0].entities[0].ids: {unknown} id? (2 times)",
    }
    caplog.clear()
    write(path, PASSAGE, PASSAGE | {"txt": "x", "xyz": 1})
    read_pool(path)
    assert sorted(caplog.messages) == [
        f"{path}, line 2, field txt: {unknown} text?",
        f"{path}, line 2, field xyz: unknown and not read; known are entities, id, source, text",
    ]
    path.write_text(json.dumps({"id": "c", "turns": [{"question": "Who?"}]}))
    read_conversations(path)
    assert "no evidence in 1 of 1 conversation" in caplog.text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_no_line_has_a_number_that_is_not_finite(number: float) -> None:
    with pytest.raises(ValueError, match="a number is not finite in"):
        dump({"logprob": number})
