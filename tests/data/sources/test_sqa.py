"""SQA with its pages: a tiny made-up folder, and a handful of real pages."""

import csv
import json
import logging
from collections import Counter
from pathlib import Path

import pytest

from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources import sqa
from turngraph.data.sources.sqa import main, read_questions, split_tables
from turngraph.data.sources.sqa_page import SqaPageTask, align_columns, align_rows, read_sqa_page
from turngraph.inference.questions import AnswerOptions, chosen_turns

STUDIES = Path(__file__).parents[3] / "docs/study"
HEADER = "id\tannotator\tposition\tquestion\ttable_file\tanswer_coordinates\tanswer_text\n"
PAGE = """<p>Ann Müller was born in Oslo.</p>
<table class="wikitable"><tr><th>Other</th></tr><tr><td>thing</td></tr></table>
<table class="wikitable"><tr><th>Name</th><th>City</th><th>Flag</th></tr>
<tr><td>Ann Müller</td><td><a href="/wiki/Oslo" title="Oslo">Oslo</a></td><td></td></tr>
<tr><td>Bjørn</td><td>Rome</td><td>歩</td></tr>
<tr><td>Cid</td><td>Rome</td><td></td></tr></table>"""
CSV = 'Name,City,Flag\nAnn Muller,Oslo,\nBjorn,Rome,Bu\n"Cid",Rome,\n'


def question(position, text, coordinates, answers, id_="nt-1", annotator=0, table="200_1"):
    fields = (id_, annotator, position, text, f"table_csv/{table}.csv", coordinates, answers)
    return "\t".join(map(str, fields)) + "\n"


QUESTIONS = (
    HEADER
    + question(1, "who was first?", "['(0, 0)']", "['Ann Muller']")
    + question(0, "which cities?", "['(0, 1)', '(1, 1)', '(2, 1)']", "['Oslo', 'Rome', 'Rome']")
    + question(0, "who is second?", "['(1, 0)', '(1, 2)']", "['Bjorn', 'Bu']", annotator=1)
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "table_csv").mkdir()
    (tmp_path / "page/200-page").mkdir(parents=True)
    (tmp_path / "train.tsv").write_text(QUESTIONS, encoding="utf-8")
    (tmp_path / "table_csv/200_1.csv").write_text(CSV, encoding="utf-8")
    (tmp_path / "page/200-page/1.html").write_text(PAGE, encoding="utf-8")
    about = json.dumps({"title": "Climbers", "tableIndex": 1})
    (tmp_path / "page/200-page/1.json").write_text(about, encoding="utf-8")
    return tmp_path


def convert(folder, *options):
    output = folder / "out.jsonl"
    folders = ["--tables", str(folder / "table_csv"), "--pages", str(folder / "page")]
    files = ["--questions", str(folder / "train.tsv"), "--output", str(output)]
    main([*files, *folders, "--workers", "1", *options])
    return read_conversations(output)


def labels(conversation):
    return [[answer.label for answer in turn.answers] for turn in conversation.turns]


def test_conversations_with_their_page(folder):
    first, second = convert(folder)
    assert (first.id, second.id, first.domain) == ("nt-1_0", "nt-1_1", "sqa")
    assert [turn.question for turn in first.turns] == ["which cities?", "who was first?"]
    assert [turn.source for turn in first.turns] == ["table", "table"]
    assert first.evidence is second.evidence
    assert [passage.text for passage in first.evidence] == [
        "Climbers, Ann Müller was born in Oslo.",
        "Climbers, Other is thing",
        "Climbers, Name is Ann Müller, City is Oslo",
        "Climbers, Name is Bjørn, City is Rome, Flag is 歩",
        "Climbers, Name is Cid, City is Rome",
    ]


def test_answers_are_the_cells_of_the_page_each_once(folder):
    first, second = convert(folder)
    assert labels(first) == [["Oslo", "Rome"], ["Ann Müller"]]
    assert [answer.id for answer in first.turns[0].answers] == ["Oslo", "value:rome"]
    assert labels(second) == [["Bjørn", "歩"]]
    ids = {entity.id for passage in second.evidence for entity in passage.entities}
    assert {answer.id for answer in second.turns[0].answers} <= ids


def test_the_pool_is_written_once(folder):
    convert(folder)
    lines = [json.loads(line) for line in (folder / "out.jsonl").open(encoding="utf-8")]
    assert [sorted(line) for line in lines] == [
        ["evidence", "pool"],
        ["domain", "id", "pool", "turns"],
        ["domain", "id", "pool", "turns"],
    ]


def test_what_was_written_is_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    convert(folder)
    assert (
        "2 conversations, 3 questions, 1 page, 5 passages (4 table, 1 text), 8 entities\n"
        in caplog.text
    )
    assert "entities of their pool: 1 of 1 single answer\n" in caplog.text
    assert "could not be read" not in caplog.text


def test_workers_change_nothing(folder):
    one = convert(folder)
    assert convert(folder, "--workers", "2") == one


def test_split(folder, monkeypatch):
    more = QUESTIONS + question(0, "and?", "['(0, 0)']", "['x']", id_="nt-2", table="200_2")
    (folder / "train.tsv").write_text(more, encoding="utf-8")
    monkeypatch.setattr(sqa, "NUM_TABLES", {"dev": 1, "tune": 0})
    assert split_tables(["table_csv/200_1.csv", "table_csv/200_2.csv"]) == {
        "train": ["table_csv/200_1.csv"],
        "tune": [],
        "dev": ["table_csv/200_2.csv"],  # its SHA-256 begins with 0, the other's with 8
    }
    assert len(convert(folder, "--part", "train")) == 2
    with pytest.raises(ValueError, match="no question on a table of tune"):
        convert(folder, "--part", "tune")


def test_the_split_of_the_results_is_made_from_the_questions_alone(sqa_folder: Path) -> None:
    given = json.loads((sqa_folder / "split_by_table.json").read_text(encoding="utf-8"))
    tables = [question.table for question in read_questions(sqa_folder / "train.tsv")]
    assert {part: sorted(names) for part, names in split_tables(tables).items()} == given
    assert {part: len(names) for part, names in given.items()} == {
        "train": 637,
        "tune": 60,
        "dev": 100,
    }


def test_the_600_dev_questions_of_the_results_are_drawn_by_the_command(
    sqa_folder: Path, tmp_path: Path
) -> None:
    """The tables' CSV files are enough: no page changes which questions are drawn."""
    (tmp_path / "no_pages").mkdir()
    options = ["--questions", str(sqa_folder / "train.tsv"), "--part", "dev", "--workers", "1"]
    options += ["--tables", str(sqa_folder / "table_csv"), "--pages", str(tmp_path / "no_pages")]
    main([*options, "--output", str(tmp_path / "dev.jsonl")])
    conversations = read_conversations(tmp_path / "dev.jsonl")
    chosen = chosen_turns(conversations, AnswerOptions(single_answers_only=True, max_questions=600))
    drawn = {(conversations[c].id, conversations[c].turns[t].id) for c in chosen for t in chosen[c]}
    files = sorted(STUDIES.glob("sqa_*/hits*.csv"))
    assert "hits_2400.csv" in {path.name for path in files}
    for path in files:
        with path.open(encoding="utf-8") as file:
            answered = {(row["conversation"], row["turn"]) for row in csv.DictReader(file)}
        assert answered == drawn, path
    assert len(drawn) == 600


def test_a_page_without_the_gold_table_takes_its_csv_rows(folder, caplog):
    html = "<p>Nothing here.</p>"
    (folder / "page/200-page/1.html").write_text(html, encoding="utf-8")
    first, _ = convert(folder)
    assert [passage.text for passage in first.evidence][:2] == [
        "Climbers, Nothing here.",
        "Climbers, Name is Ann Muller, City is Oslo",
    ]
    assert labels(first)[1] == ["Ann Muller"]
    assert first.turns[1].answers[0].id == "value:ann muller"
    assert "the page has no table like it" in caplog.text


def test_a_page_that_cannot_be_read_is_reported_and_counted(folder, caplog):
    (folder / "page/200-page/1.html").write_bytes(b"\xff\xfe\xff")
    with caplog.at_level(logging.INFO):
        first, _ = convert(folder)
    assert first.evidence[0].text == "Climbers, Name is Ann Muller, City is Oslo"
    assert "1.html: cannot be read" in caplog.text
    assert "pages that could not be read: 1" in caplog.text
    assert "gold tables taken from their CSV file: 1" in caplog.text


def test_a_row_that_the_page_lacks_is_reported(folder, caplog):
    with (folder / "table_csv/200_1.csv").open("a", encoding="utf-8") as file:
        file.write("Dora,Paris,Ok\n")
    with caplog.at_level(logging.INFO):
        convert(folder)
    assert "table_csv/200_1.csv: row 4 is not in the page's table" in caplog.text
    assert "rows of gold tables that their page lacks: 1" in caplog.text


def test_the_table_with_the_rows_counts_more_than_its_number(folder):
    about = json.dumps({"title": "Climbers", "tableIndex": 0})
    (folder / "page/200-page/1.json").write_text(about, encoding="utf-8")
    assert labels(convert(folder)[0])[1] == ["Ann Müller"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must name the fields"),
        ("id\tquestion\n", "must name the fields"),
        (HEADER, "no question in it"),
        (HEADER + "nt-1\t0\n", r"line 2: has 2 fields, not 7"),
        (QUESTIONS + question("x", "q?", "[]", "[]"), r"line 5, field position"),
        (QUESTIONS + question(5, " ", "[]", "[]"), r"line 5, field question: empty"),
        (QUESTIONS + question(5, "q?", "[]", "['a'"), r"line 5, field answer_text: not a list"),
        (QUESTIONS + question(5, "q?", "[]", "x" * 99), r"answer_text: not a list .*: x{60}$"),
        (QUESTIONS + question(5, "q?", "[]", "9" * 99), r"answer_text: not a list .*: 9{60}$"),
        (QUESTIONS + question(5, "q?", "[]", "['a']"), r"line 5, field answer_text: has 1 answ"),
        (QUESTIONS + question(5, "q?", "['(a)']", "['a']"), r"answer_coordinates: not a \(row"),
        (QUESTIONS + question(0, "q?", "[]", "[]"), r"line 5, field position: conversation nt-1_0"),
        (QUESTIONS + question(7, "q?", "[]", "[]", table="1_1"), r"line 5, field table_file"),
        (
            HEADER + question(0, "q?", "[]", "[]", table="x"),
            r"line 2, field table_file: .*x.csv' is",
        ),
        (HEADER + 'a\t"b', r"line 2: not tab-separated"),
    ],
)
def test_malformed_questions_name_file_line_and_field(folder, text, message):
    (folder / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"train\.tsv.*{message}"):
        convert(folder)
    assert not (folder / "out.jsonl").exists()


def test_bytes_that_are_no_text_name_their_line(folder):
    (folder / "train.tsv").write_bytes(HEADER.encode() + b"ok\n\xff\xff\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 3: not UTF-8"):
        read_questions(folder / "train.tsv")


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match=r"^none\.tsv: no such file"):
        read_questions("none.tsv")


def test_quoted_fields_and_line_breaks_inside_answers(folder):
    answers = '"[""Ann\'s\ncity"", \'Rome\']"'
    text = HEADER + question(0, '"where\nnow?"', "['(0, 1)', '(1, 1)']", answers)
    text += question("?", "q", "[]", "[]")
    (folder / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="line 5, field position"):
        read_questions(folder / "train.tsv")
    (folder / "train.tsv").write_text(text[: text.rindex("nt-1")], encoding="utf-8")
    (only,) = read_questions(folder / "train.tsv")
    assert only.question == "where now?"
    assert only.cells == ((0, 1, "Ann's\ncity"), (1, 1, "Rome"))


def test_rows_are_aligned_in_order_and_by_half_of_their_cells():
    grid = [["Name", "x"], ["Müller", "1"], ["Ole", "2"], ["Müller", "1"], ["Bjørn", "9"]]
    rows = [["Muller", "1"], ["Muller", "1"], ["Bjorn", "8"], ["Eve", "7"], ["", ""]]
    aligned = align_rows(rows, grid)
    assert aligned == {0: 1, 1: 3, 2: 4}
    assert align_columns(rows, grid, aligned) == {0: 0, 1: 1}


def real_page(sqa_folder, table):
    folders = sqa_folder / "table_csv", sqa_folder / "page"
    return read_sqa_page(SqaPageTask(f"table_csv/{table}.csv", *folders, ()))


def test_real_rows_read_exactly(sqa_folder):
    texts = {passage.id: passage.text for passage in real_page(sqa_folder, "203_149").evidence}
    assert texts["t1r2"] == (
        "1989 Major League Baseball Draft, First round selections, Pick is 2, "
        "Player is Tyler Houston, Team is Atlanta Braves, Position is C, "
        "School is Valley HS (Las Vegas, NV)"
    )
    assert texts["i0r2"] == "1989 Major League Baseball Draft, First round selections, 30"
    texts = {passage.id: passage.text for passage in real_page(sqa_folder, "200_22").evidence}
    assert "Mick Jagger, Born, 26 July 1943, Dartford, Kent, England" in texts.values()
    assert (
        'Mick Jagger, Singles, Year is 1985, Single is "Lucky in Love", '
        "Peak chart positions GER is 44, UK is 91, US is 38, US Main is 5, US Dance is 11, "
        "Album is She's the Boss"
    ) in texts.values()


@pytest.mark.parametrize("table", ["200_12", "203_31", "203_240", "204_132", "204_300"])
def test_real_gold_tables_are_found_whole(sqa_folder, table):
    page = real_page(sqa_folder, table)
    assert not any(page.counts[what] for what in page.counts if "could not" in what)
    assert page.counts["rows of gold tables that their page lacks"] == 0
    tables = Counter(passage.id.partition("r")[0] for passage in page.evidence)
    lines = (sqa_folder / "table_csv" / f"{table}.csv").read_text().count("\n")
    assert any(lines - 3 <= rows <= lines + 3 for rows in tables.values())
