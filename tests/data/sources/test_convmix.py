"""ConvMix, CompMix and their evidence files, in every variant that occurs."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.json_fields import Location
from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.convmix import (
    decode_escapes,
    iter_records,
    main,
    parse_passage,
    read_convmix,
)
from turngraph.data.types import Answer, Entity

PLACE = Location("file.json")


def question(number: int, turn: int = 0, **fields: Any) -> dict[str, Any]:
    answers = [{"id": f"Q{number}", "label": f"Answer {number}"}]
    return {
        "question_id": f"1-{number}",
        "question": f"Question {number}?",
        "answers": answers,
        "answer_src": "kb",
        "turn": turn,
    } | fields


def passage(text: str = "Peru, capital, Lima", **fields: Any) -> dict[str, Any]:
    return {
        "evidence_text": text,
        "source": "kb",
        "wikidata_entities": [{"id": "Q419", "label": "Peru"}, {"id": "Q2868", "label": "Lima"}],
        "disambiguations": [["Peru", "Q419"], ["Lima", "Q2868"]],
        "retrieved_for_entity": {"id": "Q419", "label": "Peru"},
    } | fields


def save(path: Path, value: Any, lines: bool = False) -> Path:
    values = value if lines else [value]
    indent = None if lines else 2
    path.write_text("\n".join(json.dumps(v, indent=indent) for v in values) + "\n")
    return path


CONVERSATION = {
    "conv_id": 1,
    "domain": "books",
    "questions": [question(1), question(2, turn=1, completed="The whole question 2?")],
}


def test_conversations(tmp_path: Path) -> None:
    (conversation,) = read_convmix(save(tmp_path / "q.json", [CONVERSATION]))
    assert (conversation.id, conversation.domain) == ("1", "books")
    assert [turn.id for turn in conversation.turns] == ["1-1", "1-2"]
    assert conversation.turns[1].question == "Question 2?"
    assert conversation.turns[0].answers == (Answer("Answer 1", "Q1"),)
    assert conversation.turns[0].source == "kb"
    assert conversation.turns[0].evidence == ()


def test_conversation_id_under_its_other_name_and_source_info_or_none(tmp_path: Path) -> None:
    record = {"conversation_id": "x-1", "questions": [question(1, answer_src="info")]}
    record["questions"].append(question(2, turn=1, answer_src=""))
    (conversation,) = read_convmix(save(tmp_path / "q.json", [record]))
    assert (conversation.id, conversation.domain) == ("x-1", "")
    assert [turn.source for turn in conversation.turns] == ["infobox", None]


def test_turns_stand_in_their_order(tmp_path: Path) -> None:
    questions = [question(3, turn=2), question(1, turn=0), question(2, turn=1)]
    path = save(tmp_path / "q.json", [{"conv_id": 1, "questions": questions}])
    assert [turn.id for turn in read_convmix(path)[0].turns] == ["1-1", "1-2", "1-3"]


def test_single_questions_are_conversations_of_one_turn(tmp_path: Path) -> None:
    records = [question(1, domain="music"), question(2, domain="books")]
    for lines in (False, True):
        one, other = read_convmix(save(tmp_path / "compmix.json", records, lines=lines))
        assert (one.id, one.domain, len(one.turns)) == ("1-1", "music", 1)
        assert (other.id, other.domain, other.turns[0].question) == ("1-2", "books", "Question 2?")


def test_escapes_are_decoded() -> None:
    assert decode_escapes("1962\\u201363") == "1962–63"
    assert decode_escapes("K\\u00F6ln and \\ud83d\\ude00!") == "Köln and 😀!"
    assert decode_escapes("\\ud83d alone") == "\ufffd alone"
    assert decode_escapes("\\u12 \\x41 C:\\users") == "\\u12 \\x41 C:\\users"


def test_labels_mentions_and_text_are_decoded(tmp_path: Path) -> None:
    raw = passage(
        "Jos\\u00E9 S\\u00E1nchez-Gavito, occupation, composer",
        wikidata_entities=[{"id": "Q1", "label": "Jos\\u00E9 S\\u00E1nchez-Gavito"}],
        disambiguations=[["Jos\\u00E9", "Q1"]],
    )
    evidence = parse_passage(raw, PLACE)
    assert evidence.text == "José Sánchez-Gavito, occupation, composer"
    assert evidence.entities == (Entity("Q1", "José Sánchez-Gavito", ("José",)),)
    answers = [{"id": "Q104770", "label": "1. FC K\\u00F6ln"}]
    path = save(tmp_path / "q.json", [question(1, answers=answers)])
    assert read_convmix(path)[0].turns[0].answers == (Answer("1. FC Köln", "Q104770"),)


def test_dates_and_numbers_lose_their_quotes_in_id_label_and_text(tmp_path: Path) -> None:
    raw = passage(
        'Town, end time, 23 May "1949, people, "+3000", song, "Heroes"',
        wikidata_entities=[
            {"id": '"1949-05-23T00:00:00Z"', "label": '23 May "1949'},
            {"id": '"+3000"', "label": '"+3000"'},
            {"id": "1959-01-01T00:00:00Z", "label": "1959"},
            {"id": "Q5", "label": '"Heroes"'},
        ],
        disambiguations=[['23 May "1949', '"1949-05-23T00:00:00Z"']],
    )
    evidence = parse_passage(raw | {"retrieved_for_entity": None}, PLACE)
    assert evidence.text == 'Town, end time, 23 May 1949, people, 3000, song, "Heroes"'
    assert evidence.entities == (
        Entity("1949-05-23T00:00:00Z", "23 May 1949"),
        Entity("3000", "3000"),
        Entity("1959-01-01T00:00:00Z", "1959"),
        Entity("Q5", '"Heroes"'),
    )
    answers = [{"id": '"2000-10-02T00:00:00Z"', "label": '2 October "2000'}]
    path = save(tmp_path / "q.json", [question(1, answers=answers)])
    expected = Answer("2 October 2000", "2000-10-02T00:00:00Z")
    assert read_convmix(path)[0].turns[0].answers == (expected,)


def test_mentions_come_from_disambiguations() -> None:
    raw = passage(
        "Amarillo, Texas, The town is large",
        wikidata_entities=[{"id": "Q1", "label": "Amarillo"}, {"id": "Q7", "label": "Q7"}],
        disambiguations=[
            ["Amarillo", "Q1"],
            ["The town", "Q1"],
            ["The town", "Q1"],
            ["large", None],
            ["is", False],
            ["Texas", "Q1439"],
            ["town", "Q7"],
        ],
    )
    assert parse_passage(raw, PLACE).entities[:3] == (
        Entity("Q1", "Amarillo", ("The town",)),
        Entity("Q7", "town"),
        Entity("Q1439", "Texas"),
    )


@pytest.mark.parametrize(
    "value",
    [
        {"id": "Q38370", "label": "Henry VIII"},
        [{"id": "Q38370", "label": "Henry VIII"}, {"id": "Q5", "label": "not in the text"}],
        [{"id": "Q9"}, {"id": "P19", "label": "books"}, {"id": "Q38370", "label": "Henry VIII"}],
    ],
)
def test_retrieved_for_is_an_object_or_a_list(value: object) -> None:
    raw = passage("Henry VIII, He wrote books", wikidata_entities=[], disambiguations=[])
    evidence = parse_passage(raw | {"retrieved_for_entity": value}, PLACE)
    assert evidence.entities == (Entity("Q38370", "Henry VIII"),)


@pytest.mark.parametrize("value", [{"id": "Q419"}, None, []])
def test_retrieved_for_may_say_nothing(value: object) -> None:
    raw = passage(retrieved_for_entity=value)
    assert [e.id for e in parse_passage(raw, PLACE).entities] == ["Q419", "Q2868"]


def with_evidence(name: str) -> list[dict[str, Any]]:
    first = question(1, **{name: [passage(), passage("Peru, area, large", source="info")]})
    return [CONVERSATION | {"questions": [first, question(2, turn=1, **{name: [passage()]})]}]


BY_ID = {"1-1": [passage(), passage("Peru, area, large", source="info")], "1-2": [passage()]}
AS_LINES = [{"question_id": id_, "top_evidences": passages} for id_, passages in BY_ID.items()]


@pytest.mark.parametrize(
    ("evidence", "lines"),
    [
        (with_evidence("top_evidences"), False),
        (with_evidence("top_evidences"), True),
        (with_evidence("evidences"), False),
        (with_evidence("top_evidence"), True),
        (BY_ID, False),
        ([BY_ID], True),
        ([{id_: passages} for id_, passages in BY_ID.items()], True),
        (AS_LINES, True),
        (AS_LINES, False),
    ],
)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_evidence_files(tmp_path: Path, evidence: Any, lines: bool, ending: str) -> None:
    questions = save(tmp_path / "q.json", [CONVERSATION])
    path = save(tmp_path / f"e.{ending}", evidence, lines=lines)
    (conversation,) = read_convmix(questions, [path])
    first, second = (turn.evidence for turn in conversation.turns)
    assert [(p.id, p.text, p.source) for p in first] == [
        ("0", "Peru, capital, Lima", "kb"),
        ("1", "Peru, area, large", "infobox"),
    ]
    assert second == first[:1]
    assert second[0] is first[0]
    assert [e.id for e in first[0].entities] == ["Q419", "Q2868"]


def test_evidence_in_the_questions_file_is_read(tmp_path: Path) -> None:
    (conversation,) = read_convmix(save(tmp_path / "q.json", with_evidence("top_evidences")))
    assert [len(turn.evidence) for turn in conversation.turns] == [2, 1]


def test_several_files_are_joined_and_repeated_passages_merged(tmp_path: Path) -> None:
    questions = save(tmp_path / "q.json", [CONVERSATION])
    one = save(tmp_path / "a.json", {"1-1": [passage(), passage("b")]})
    extra = passage(wikidata_entities=[{"id": "Q5", "label": "Lima city"}], disambiguations=[])
    other = save(tmp_path / "b.json", {"1-1": [extra, passage("c", id="own")]})
    evidence = read_convmix(questions, [one, other])[0].turns[0].evidence
    assert [(p.id, p.text) for p in evidence] == [
        ("0", "Peru, capital, Lima"),
        ("1", "b"),
        ("own", "c"),
    ]
    assert [e.id for e in evidence[0].entities] == ["Q419", "Q2868", "Q5"]


def test_what_does_not_match_is_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    questions = save(tmp_path / "q.json", [question(i) for i in range(10)])
    others = {f"x-{i}": [passage()] for i in range(7)}
    evidence = save(tmp_path / "e.json", {"1-0": [passage()], "1-1": []} | others)
    with caplog.at_level(logging.INFO):
        read_convmix(questions, [evidence])
    assert "10 conversations, 10 questions" in caplog.text
    assert "1 passage (1 kb)" in caplog.text
    assert "questions without evidence: 9: 1-1, 1-2, 1-3, 1-4, 1-5, ..." in caplog.text
    assert "questions in the evidence that are not among the questions: 7: x-0, x-1" in caplog.text


def test_evidence_for_other_questions_only_is_an_error(tmp_path: Path) -> None:
    questions = save(tmp_path / "q.json", [question(1)])
    evidence = save(tmp_path / "e.json", {"9-9": [passage()]})
    with pytest.raises(ValueError, match=r"e\.json: none of its questions \(9-9\) is in .*q\.json"):
        read_convmix(questions, [evidence])


@pytest.mark.parametrize("name", ["candidate_evidences", "top_evidences"])
def test_a_file_without_evidence_is_an_error(name: str, tmp_path: Path) -> None:
    questions = save(tmp_path / "q.json", [question(1, evidences=[passage()])])
    evidence = save(tmp_path / "e.json", [question(1, **{name: []})])
    with pytest.raises(ValueError, match=r"e\.json: no passage in it, in a field top_ev"):
        read_convmix(questions, [evidence])


def test_the_field_that_has_passages_is_read(tmp_path: Path) -> None:
    asked = question(1, top_evidences=[], evidences=[passage()])
    (conversation,) = read_convmix(save(tmp_path / "q.json", [asked]))
    assert len(conversation.turns[0].evidence) == 1


def test_names_of_no_words_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers = [{"id": "Q1", "label": " "}, {"id": "Q2", "label": "Lima"}]
    bare = passage(wikidata_entities=[{"id": "Q3", "label": " "}], disambiguations=[])
    asked = question(1, answers=answers, evidences=[bare])
    (conversation,) = read_convmix(save(tmp_path / "q.json", [asked]))
    assert [answer.label for answer in conversation.turns[0].answers] == ["Lima"]
    assert all(e.label.strip() for p in conversation.turns[0].evidence for e in p.entities)
    assert "questions with a gold answer of no words, which is left out: 1: 1-1" in caplog.text


def test_repeated_ids_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conversations = read_convmix(save(tmp_path / "q.json", [CONVERSATION, CONVERSATION]))
    assert [c.id for c in conversations] == ["1", "1#2"]
    assert "'1' (2 times)" in caplog.text
    assert "question ids that occur more than once: 2: 1-1, 1-2" in caplog.text


BAD_PASSAGES = {
    "source": (passage(source="wiki"), "field source: must be one of kb, .*, info, not 'wiki'"),
    "no source": ({"evidence_text": "x"}, "field source: missing"),
    "no text": (passage(evidence_text=None), "field evidence_text: missing"),
    "mention": (passage(disambiguations=[["Lima"]]), r"field disambiguations\[0\]: must be \[men"),
    "mention id": (
        passage(disambiguations=[["a", 1.5]]),
        r"disambiguations\[0\].id: must be a string, not 1.5",
    ),
    "entity": (
        passage(wikidata_entities=["Q1"]),
        r"field wikidata_entities\[0\]: must be an object",
    ),
    "no label": (passage(wikidata_entities=[{}]), r"wikidata_entities\[0\].label: missing"),
    "retrieved": (passage(retrieved_for_entity="Q1"), "retrieved_for_entity: must be a list"),
}


@pytest.mark.parametrize(("raw", "message"), BAD_PASSAGES.values(), ids=BAD_PASSAGES.keys())
def test_a_malformed_passage_is_named(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_passage(raw, PLACE)
    assert str(error.value).startswith("file.json, ")


BAD_QUESTIONS = {
    "no conversation id": ({"questions": [question(1)]}, "field [1].conv_id: missing"),
    "no questions": (
        {"conv_id": 1, "questions": []},
        "field [1].questions: a conversation needs at least one question",
    ),
    "no question id": ({"question": "x"}, "field [1].question_id: missing"),
    "empty": (question(1, question=" "), "field [1].question: empty: a turn needs a question"),
    "turn": (
        {"conv_id": 1, "questions": [question(1, turn="a")]},
        'field [1].questions[0].turn: must be a whole number, not "a"',
    ),
    "answer": (question(1, answers=[{"id": "Q1"}]), "field [1].answers[0].label: missing"),
    "number": (3, "field [1]: must be an object, not 3"),
    "long text": ("x" * 99, f'field [1]: must be an object, not "{"x" * 39}'),
}


@pytest.mark.parametrize(("record", "message"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS.keys())
def test_a_malformed_question_is_named(tmp_path: Path, record: Any, message: str) -> None:
    path = save(tmp_path / "q.json", [CONVERSATION, record])
    with pytest.raises(ValueError, match="field") as error:
        read_convmix(path)
    assert str(error.value) == f"{path}, {message}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'[\n{"conv_id": 1,}\n]', r"line 2: not JSON: .*\(column"),
        (b'[\n"\xff"]', "line 2: not UTF-8 at byte 4"),
        (b'{"question_id": 1, "question": "x"}\n{"question_id": }\n', "line 2: not JSON"),
        (b'{"question_id": }\n{"question_id": 1}\n', "line 1: not JSON"),
        (b"[]", "no conversation in it"),
        (b"", "line 1: not JSON"),
    ],
)
def test_a_file_that_is_not_json_is_named(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "q.json").write_bytes(raw)
    with pytest.raises(ValueError, match=message) as error:
        read_convmix(tmp_path / "q.json")
    assert "q.json" in str(error.value)


def test_bare_passages_are_no_evidence_file(tmp_path: Path) -> None:
    questions = save(tmp_path / "q.json", [question(1)])
    evidence = save(tmp_path / "e.json", [passage()])
    with pytest.raises(ValueError, match=r"\[0\].question_id: missing: a passage"):
        read_convmix(questions, [evidence])


def test_command_line(tmp_path: Path) -> None:
    questions = save(tmp_path / "q.json", [CONVERSATION])
    evidence = save(tmp_path / "e.jsonl", with_evidence("top_evidences"), lines=True)
    output = tmp_path / "out.jsonl"
    main(["--questions", str(questions), "--evidence", str(evidence), "--output", str(output)])
    assert read_conversations(output) == read_convmix(questions, [evidence])
    output.unlink()
    evidence.write_text("{broken")
    with pytest.raises(ValueError, match="line 1"):
        main(["--questions", str(questions), "--evidence", str(evidence), "--output", str(output)])
    assert not output.exists()


def test_the_real_questions(convmix_folder: Path, tmp_path: Path) -> None:
    conversations = read_convmix(convmix_folder / "convmix_dev.json")
    turns = [turn for conversation in conversations for turn in conversation.turns]
    assert (len(conversations), len(turns)) == (560, 2800)
    assert all(turn.answers for turn in turns)
    assert Counter(turn.source for turn in turns) == Counter(
        {"text": 850, "kb": 806, "infobox": 794, "table": 344, None: 6}
    )
    assert conversations[0].id == "1680"
    assert [turn.answers for turn in conversations[0].turns] == [
        (Answer("Divergent", "Q627192"),),
        (Answer("Veronica Roth", "Q328212"),),
        (Answer("19 August 1988", "1988-08-19T00:00:00Z"),),
        (Answer("Insurgent", "Q5918512"),),
        (Answer("1 May 2012", "2012-05-01T00:00:00Z"),),
    ]
    labels = {answer.label for turn in turns for answer in turn.answers}
    assert "1. FC Köln" in labels
    assert not any("\\u" in label for label in labels)


def test_the_real_passages(convmix_folder: Path) -> None:
    path = convmix_folder / "convinse_evidence_sample.json"
    passages = [parse_passage(record, location) for location, record in iter_records(path)]
    assert Counter(p.source for p in passages) == {"text": 57, "kb": 22, "table": 12, "infobox": 9}
    entities = [entity for p in passages for entity in p.entities]
    assert all('"' not in entity.id for entity in entities)
    assert not any("\\u" in text for e in entities for text in (e.label, *e.mentions))
    twilight = passages[0]
    assert twilight.entities[0] == Entity(
        "Q4571012", "1962–63 United States network television schedule", ("4 (1963)",)
    )
    (mergentheim,) = (p for p in passages if p.text.startswith("Bad Mergentheim"))
    assert mergentheim.text.endswith("end time, 23 May 1949, start time, 21 April 1945")
    assert Entity("1949-05-23T00:00:00Z", "23 May 1949") in mergentheim.entities
