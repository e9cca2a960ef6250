"""HybridQA and OTT-QA: a table made by hand, with the paragraphs that its cells link to."""

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.hybridqa import main, part_of, undo_tokenisation
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
    main([*files, "--output", str(folder / "out.jsonl"), *(["--part", part] if part else [])])
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
    num = [parts.count(part) for part in ("train", "tune", "dev")]
    assert num == [1382, 200, 418]
    questions = [QUESTION | {"table_id": f"{page}_0", "question_id": page} for page in pages[:30]]
    for page in pages[:30]:
        for folder, value in (("tables", TABLE), ("links", LINKS)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{page}_0.json").write_text(json.dumps(value), encoding="utf-8")
    for part in ("train", "tune", "dev"):
        found = convert(tmp_path, questions, part=part)
        expected = [page for page, its in zip(pages[:30], parts[:30], strict=True) if its == part]
        assert [one.id for one in found] == [f"ottqa-{page}" for page in expected]
    alone = next(q for q, part in zip(questions, parts, strict=False) if part == "train")
    with pytest.raises(UserError, match=r"q\.json: no question on a table of tune"):
        convert(tmp_path, [alone], part="tune")


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
        ({"table": TABLE | {"data": [ROW[:2]]}}, "field data[0]: has 2 cells, and header 3"),
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
