"""HybridQA and OTT-QA: a table made by hand, with the paragraphs that its cells link to."""

import json
import logging
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.hybridqa import PARTS, main, part_of, undo_tokenisation
from turngraph.data.types import Answer, Conversation

TABLE = {
    "title": "Chad at the Games",
    "section_title": "Medals ( 1996 )",
    "header": [["Medal", []], ["Name", ["/wiki/Name"]], ["Team", []]],
    "data": [
        [["Gold", []], ["Ann Ray", ["/wiki/Ann_Ray_(runner)"]], ["Moundou", ["/wiki/Moundou"]]],
        [["-", []], ["Bo Lee Cy", ["/wiki/Bo_Lee", "/wiki/Cy"]], ["N'Djamena", []]],
    ],
}
LINKS = {
    "/wiki/Ann_Ray_(runner)": "Ann Ray ( born 1970 ) is a runner . Her nickname is `` Swift '' .",
    "/wiki/Bo_Lee": "Bo Lee lives in Moundou , with Mr. Cy 's dog .",
}
QUESTION = {
    "question_id": "1",
    "question": "Who is Ann Ray 's team ?",
    "table_id": "T_0",
    "answer-text": "Moundou",
    "answer-node": [["Moundou", [0, 2], "/wiki/Moundou", "table"]],
    "benchmark": "ottqa",
}
BORN = {
    "question_id": "2",
    "question": "When was the gold medal winner born ?",
    "table_id": "T_0",
    "answer-text": "1970",
    "answer-node": [["Ann Ray", [0, 1], "/wiki/Ann_Ray_(runner)", "passage"]],
}
UNKNOWN = {"question_id": "3", "question": "Who ?", "table_id": "T_0"}


def convert(
    folder: Path,
    questions: Any = (QUESTION, BORN, UNKNOWN),
    table: Any = TABLE,
    links: Any = LINKS,
    part: str | None = None,
    options: tuple[str, ...] = (),
) -> list[Conversation]:
    """Write the files, convert them, and read what was written."""
    for name, value in (
        ("q.json", questions),
        ("tables/T_0.json", table),
        ("links/T_0.json", links),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    given = ("--questions", "q.json", "--tables", "tables", "--links", "links")
    files = [one if one.startswith("--") else str(folder / one) for one in given]
    options = (*options, "--part", part) if part else options
    main([*files, "--output", str(folder / "out.jsonl"), *options])
    return read_conversations(folder / "out.jsonl")


def test_rows_and_paragraphs_are_joined_by_links(tmp_path: Path) -> None:
    first, second, _ = convert(tmp_path)
    assert first.evidence is second.evidence
    texts = {passage.id: (passage.source, passage.text) for passage in first.evidence}
    row = "Chad at the Games, Medals (1996), Medal is Gold, Name is Ann Ray, Team is Moundou"
    assert texts["row 1"] == ("table", row)
    assert texts["Ann Ray (runner), 2"] == ("text", 'Ann Ray (runner), Her nickname is "Swift".')
    ids = {passage.id: {entity.id for entity in passage.entities} for passage in first.evidence}
    assert ids["row 1"] == {"Chad at the Games", "value:gold", "Ann Ray (runner)", "Moundou"}
    assert {"Bo Lee", "Cy"} < ids["row 2"]
    assert ids["Ann Ray (runner), 2"] == {"Ann Ray (runner)", "swift"}
    assert {"Bo Lee", "Moundou"} <= ids["Bo Lee, 1"]  # a cell's value in a sentence
    labels = {e.id: e.label for passage in first.evidence for e in passage.entities}
    assert labels["Ann Ray (runner)"] == "Ann Ray"
    assert labels["Cy"] == "Cy"


def test_questions_are_conversations_of_one_turn(tmp_path: Path) -> None:
    team, born, unknown = convert(tmp_path)
    assert (team.id, team.domain, len(team.turns)) == ("ottqa-1", "ottqa", 1)
    assert team.turns[0].question == "Who is Ann Ray's team?"
    assert team.turns[0].answers == (Answer("Moundou", "Moundou"),)
    assert team.turns[0].source == "table"
    assert born.id == "hybridqa-2"
    assert born.turns[0].answers == (Answer("1970", "1970"),)  # found in a sentence
    assert born.turns[0].source == "text"
    assert (unknown.turns[0].answers, unknown.turns[0].source) == ((), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It 's `` so '' ( and 5 % ) , isn't it ?", "It's \"so\" (and 5%), isn't it?"),
        ("$ 880 million", "$880 million"),
        ("He did n't : yes ; no !", "He didn't : yes; no!"),
        ("", ""),
    ],
)
def test_spaces_of_tokens_are_removed(text: str, expected: str) -> None:
    assert undo_tokenisation(text) == expected


def test_the_parts_share_no_page(tmp_path: Path) -> None:
    pages = [f"Page {number}" for number in range(2000)]
    parts = [part_of(f"{page}_0") for page in pages]
    assert parts == [part_of(f"{page}_17") for page in pages]
    num = [parts.count(part) for part in PARTS]
    assert num == [1267, 90, 318, 325]
    questions = [QUESTION | {"table_id": f"{page}_0", "question_id": page} for page in pages[:30]]
    for page in pages[:30]:
        for folder, value in (("tables", TABLE), ("links", LINKS)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{page}_0.json").write_text(json.dumps(value), encoding="utf-8")
    for part in set(parts[:30]):
        found = convert(tmp_path, questions, part=part)
        expected = [page for page, its in zip(pages[:30], parts[:30], strict=True) if its == part]
        assert [one.id for one in found] == [f"ottqa-{page}" for page in expected]
    alone = next(q for q, part in zip(questions, parts, strict=False) if part == "train")
    with pytest.raises(UserError, match=r"q\.json: no question on a table of tune"):
        convert(tmp_path, [alone], part="tune")


def test_the_command_makes_the_split_of_the_results(
    hybridqa_questions: dict[str, Any], tmp_path: Path
) -> None:
    parts = {part: hybridqa_questions[part] for part in ("train", "tune", "dev")}
    assert [len(questions) for questions in parts.values()] == [2909, 281, 746]
    for part, questions in parts.items():
        assert {part_of(question["table_id"]) for question in questions} == {part}
    # as published: a file of each benchmark, and tables of OTT-QA's alone; some of each part
    parts = {part: questions[:20] + questions[-20:] for part, questions in parts.items()}
    options = ["--skip_missing_tables"]
    for name in ("tables", "links"):
        (tmp_path / name).mkdir()
        options += [f"--{name}", str(tmp_path / name)]
    for option, benchmark in (("questions", "hybridqa"), ("ottqa_questions", "ottqa")):
        published = [UNKNOWN | {"table_id": "not of OTT-QA_0"}]
        for question in chain.from_iterable(parts.values()):
            if question["benchmark"] == benchmark:
                published.append({key: question[key] for key in question if key != "benchmark"})
                name = f"{question['table_id']}.json"
                (tmp_path / "tables" / name).write_text(json.dumps(TABLE | {"data": []}))
                (tmp_path / "links" / name).write_text("{}")
        (tmp_path / benchmark).write_text(json.dumps(published), encoding="utf-8")
        options += [f"--{option}", str(tmp_path / benchmark)]
    for part, questions in parts.items():
        main([*options, "--part", part, "--output", str(tmp_path / "out.jsonl")])
        made = [one.id for one in read_conversations(tmp_path / "out.jsonl")]
        assert made == [f"{one['benchmark']}-{one['question_id']}" for one in questions]


def test_questions_on_tables_that_are_not_there_are_skipped_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    elsewhere = [BORN | {"question_id": "4", "table_id": "U_0"}]
    found = convert(tmp_path, [BORN, *elsewhere], options=("--skip_missing_tables",))
    assert [one.id for one in found] == ["hybridqa-2"]
    assert f"questions on tables not in {tmp_path / 'tables'}: 1\n" in caplog.text
    with pytest.raises(UserError, match=r"no question on a table of .*tables$"):
        convert(tmp_path, elsewhere, options=("--skip_missing_tables",))


def test_the_questions_of_both_benchmarks_are_converted_together(tmp_path: Path) -> None:
    (tmp_path / "ottqa.json").write_text(json.dumps([BORN]), encoding="utf-8")
    other = ("--ottqa_questions", str(tmp_path / "ottqa.json"))
    found = convert(tmp_path, [UNKNOWN, BORN], options=other)
    assert [one.id for one in found] == ["hybridqa-3", "hybridqa-2", "ottqa-2"]
    assert [one.domain for one in found] == ["hybridqa", "hybridqa", "ottqa"]
    (tmp_path / "ottqa.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"ottqa\.json: no question in it"):
        convert(tmp_path, [BORN], options=other)


ROW = TABLE["data"][0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"questions": []}, "q.json: no question in it"),
        ({"questions": [3]}, "q.json, field [0]: must be an object, not 3"),
        ({"questions": [QUESTION | {"question": " "}]}, "q.json, field [0].question: empty"),
        ({"questions": [QUESTION | {"table_id": "../T_0"}]}, "field [0].table_id: not the name of"),
        ({"questions": [QUESTION | {"table_id": "U"}]}, "field [0].table_id: no such table: "),
        (
            {"questions": [QUESTION | {"answer-node": [["x", [0, 0], None, "page"]]}]},
            "field [0].answer-node[0]: must be [name, cell, link, table or passage], not [",
        ),
        ({"table": []}, "T_0.json: must be an object, not []"),
        ({"table": TABLE | {"title": None}}, "T_0.json, field title: missing"),
        ({"table": TABLE | {"header": 3}}, "field header: must be a list of cells, not 3"),
        (
            {"table": TABLE | {"data": [ROW[:2]]}},
            "field data[0]: has 2 cells, but the header has 3",
        ),
        (
            {"table": TABLE | {"data": [[*ROW[:2], ["x", [3]]]]}},
            'field data[0][2]: must be a text and a list of links, not ["x", [3]]',
        ),
        ({"links": {"/wiki/Cy": 3.5}}, "field /wiki/Cy: must be a string, not 3.5"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_field(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        convert(tmp_path, **wrong)
    assert message in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_missing_files_are_named(tmp_path: Path) -> None:
    convert(tmp_path)
    (tmp_path / "links/T_0.json").unlink()
    given = ["--questions", str(tmp_path / "q.json"), "--tables", str(tmp_path / "tables")]
    given += ["--output", str(tmp_path / "out.jsonl"), "--links"]
    for links, message in (("links", "links/T_0.json: no such file"), ("no", "no: no such folder")):
        with pytest.raises(UserError, match=message):
            main([*given, str(tmp_path / links)])
