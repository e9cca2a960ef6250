"""The command line, as a user runs it."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import write_conversations
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.inputs import read_episodes
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.types import Answer, Conversation, Turn
from turngraph.inference import memory_commands, remember_commands
from turngraph.inference.memory_options import row_id
from turngraph.inference.memory_printing import clean_line
from turngraph.inference.model_options import local_extractor, server_extractor
from turngraph.memory import main
from turngraph.tests.data.sources.made_documents import pdf_of_lines
from turngraph.tests.stand_in_ray import StandIn
from turngraph.tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[1]
STORY = """Anna lives in Paris. Anna works at the Louvre.

Bert knows Anna.
The Louvre is in Paris.
"""
LATER = (
    '{"text": "Anna lives in Berlin.", "time": "2021-06", "source": "letters", "speaker": "Eva"}'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "story.txt").write_text(STORY, encoding="utf-8")
    (tmp_path / "letters.jsonl").write_text(LATER + "\n", encoding="utf-8")
    return tmp_path


def run(capsys: Any, command: str, folder: Path, *options: object) -> str:
    """What a command prints; it works on ``my.db``."""
    capsys.readouterr()
    main([command, "--db", str(folder / "my.db"), *map(str, options)])
    return capsys.readouterr().out


def remember(capsys: Any, folder: Path) -> None:
    run(capsys, "remember", folder, "--input", folder / "story.txt", "--time", "2019")
    run(capsys, "remember", folder, "--input", folder / "letters.jsonl")


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_a_user_remembers_asks_and_reads_plain_lines(folder: Path) -> None:
    """In processes of their own; neither remembering nor counting loads torch."""
    code = (
        "import sys; from turngraph.data.cli import run_cli; from turngraph.memory import main;"
        "run_cli(main); sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )

    def python(*arguments: object) -> str:
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    db = ("--db", folder / "my.db")
    said = python("-c", code, "remember", *db, "--input", folder / "story.txt")
    assert said.startswith("2 episodes: ")
    assert "nodes episodic\t2\n" in python("-c", code, "stats", *db)
    found = python("-m", "turngraph.memory", "ask", *db, "--no_embed", "Where does Anna live?")
    assert "Anna lives in Paris" in found.splitlines()[0]
    assert "\x1b" not in found


def test_the_same_file_again_adds_nothing_and_a_grown_one_what_is_new(
    folder: Path, capsys: Any
) -> None:
    story = folder / "story.txt"
    assert run(capsys, "remember", folder, "--input", story).startswith("2 episodes: ")
    before = run(capsys, "export", folder, "--jsonl", folder / "before.jsonl")
    assert run(capsys, "remember", folder, "--input", story).startswith("0 episodes (2 known")
    story.write_text("Cem is a cook.\n\n" + STORY, encoding="utf-8")
    assert run(capsys, "remember", folder, "--input", story).startswith("1 episode (2 known")
    assert before.startswith(str(len((folder / "before.jsonl").read_text().splitlines())))


def test_ask_as_json_and_as_of(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    ask = ("Where does Anna live?", "--no_embed", "--json", "--over", "facts")
    now = json.loads(run(capsys, "ask", folder, *ask))
    texts = [fact["text"] for fact in now["facts"]]
    assert any("Berlin" in text for text in texts)
    assert "Anna lives in Paris" not in texts
    assert (now["no_answer"], now["entities"][0]["name"]) == (False, "Anna")
    [berlin] = [
        fact for fact in now["facts"] if fact["type"] == "simple" and "Berlin" in fact["text"]
    ]
    assert berlin["ends"] == {"subject": "Anna", "relation": "lives in", "object": "Berlin"}
    assert berlin["provenance"][0]["source"] == "letters"
    assert berlin["provenance"][0]["speaker"] == "Eva"
    assert 0 < berlin["score"] <= 1
    then = json.loads(run(capsys, "ask", folder, *ask, "--as_of", "2020"))
    assert any("Paris" in fact["text"] for fact in then["facts"])
    held = [fact["text"] for fact in then["facts"] if fact["type"] != "episodic"]
    assert not any("Berlin" in text for text in held)  # an episode is a record of what was said


def test_each_statement_is_printed_once(folder: Path, capsys: Any) -> None:
    text = "\n\n".join(f"Anna visited Town{letter}." for letter in "abcdefghijkl")
    (folder / "towns.txt").write_text(f"{text}\n\nAnna lives in Oslo and works at Acme.\n")
    run(capsys, "remember", folder, "--input", folder / "towns.txt")
    ask = ("What has Anna visited?", "--no_embed", "--num_facts", "12")
    lines = run(capsys, "ask", folder, *ask).splitlines()
    texts = [line.split("\t")[2] for line in lines]
    assert len(set(texts)) == len(texts) == 12
    assert {line.split("\t")[1] for line in lines} == {"thesis"}


def test_forbidden_types_stand_before_the_question(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    types = ("--forbidden", "E", "--forbidden", "T")
    asked = run(capsys, "ask", folder, "--no_embed", *types, "Where does Anna live?")
    assert {line[1] for line in lines(asked)} == {"triplet"}


def test_a_similarity_that_is_no_cosine_is_refused(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    with pytest.raises(ValueError, match=r"min_similarity: 5\.0 given, must lie between -1 and 1"):
        run(capsys, "ask", folder, "--no_embed", "--min_similarity", 5, "Where does Anna live?")


def test_no_answer_and_questions_from_standard_input(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(capsys, folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("Where does Zyx live?\n\nWhom does Bert know?\n"))
    first, *rest = run(capsys, "ask", folder, "--no_embed", "--num_facts", 1).splitlines()
    assert first == "no answer"
    assert len(rest) == 1
    assert "Bert knows Anna" in rest[0]
    monkeypatch.setattr("sys.stdin", io.StringIO("Whom does Bert know?\nWho is \udcff?\n"))
    with pytest.raises(ValueError, match=r"^standard input, line 2: not UTF-8"):
        run(capsys, "ask", folder, "--no_embed")


def test_show_and_history(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    shown = run(capsys, "show", folder, "anna")
    assert "Anna (in 3 episodes)" in shown
    assert "Anna lives in Paris\t" not in shown
    history = lines(run(capsys, "history", folder, "ANNA"))
    texts = [row[2] for row in history]
    paris = texts.index("Anna lives in Paris")
    assert (history[paris][1], history[paris][3]) == ("triplet", "until 2021-06")
    assert history[paris][4].endswith("2019 story.txt")
    asked = json.loads(run(capsys, "history", folder, "Anna", "--json"))
    assert [fact["text"] for fact in asked] == texts
    told = json.loads(run(capsys, "show", folder, "Anna", "--json"))
    assert (told["name"], told["num_episodes"]) == ("Anna", 3)
    assert told["facts"] == [fact for fact in asked if fact["text"] in shown]
    counted = json.loads(run(capsys, "stats", folder, "--json"))
    assert counted["nodes"]["episodic"] == 3


def test_edits_and_undo(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    run(capsys, "rename", folder, "Bert", "Robert")
    assert "Robert" in run(capsys, "show", folder, "Bert")
    run(capsys, "merge", folder, "Robert", "Anna")
    assert run(capsys, "undo", folder).startswith("undone: merge")
    fact = json.loads(run(capsys, "history", folder, "Anna", "--json"))[0]
    run(capsys, "split", folder, "Anna", "--name", "Anna B.", "--fact", fact["key"])
    assert fact["text"].replace("Anna", "Anna B.") in run(capsys, "history", folder, "Anna B.")
    with pytest.raises(ValueError, match="no object is named 'Zyx'"):
        run(capsys, "rename", folder, "Zyx", "Y")


def test_forget_asks_a_person_and_needs_yes_without_one(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(capsys, folder)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(ValueError, match="give --yes"):
        run(capsys, "forget", folder, "--source", "letters")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in (("n", 3), ("", 3), ("y", 2)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        said = run(capsys, "forget", folder, "--source", "letters")
        assert ("nothing was forgotten" in said) == (left == 3)
        assert re.search(r"^#\d+\t\S*\tletters\t\S.+$", said, re.MULTILINE)
        assert f"nodes episodic\t{left}\n" in run(capsys, "stats", folder)
    run(capsys, "forget", folder, "--entity", "Louvre", "--yes")
    assert b"Louvre" not in (folder / "my.db").read_bytes()


def test_what_would_be_forgotten_is_listed_up_to_a_number(folder: Path, capsys: Any) -> None:
    (folder / "many.txt").write_text("\n\n".join(f"Day {day}. {'x' * 300}" for day in range(22)))
    run(capsys, "remember", folder, "--input", folder / "many.txt")
    with pytest.raises(ValueError, match="give --yes"):
        run(capsys, "forget", folder, "--source", "many.txt")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[3][:7] for line in lines[:20]] == [
        f"Day {day}. "[:7] for day in range(20)
    ]
    assert {len(line.split("\t")[3]) for line in lines[:20]} == {200}
    assert lines[20] == "and 2 more episodes"
    assert "episodes\t22" in lines


def test_a_list_and_texts_that_just_fit_are_shown_whole(folder: Path, capsys: Any) -> None:
    texts = [f"Day {day:02} {'x' * 193}" for day in range(20)]
    (folder / "many.txt").write_text("\n\n".join(texts))
    run(capsys, "remember", folder, "--input", folder / "many.txt")
    with pytest.raises(ValueError, match="give --yes"):
        run(capsys, "forget", folder, "--source", "many.txt")
    said = capsys.readouterr().out
    assert [line.split("\t")[3] for line in said.splitlines()[:20]] == texts
    assert {len(text) for text in texts} == {200}
    assert "more episode" not in said
    with pytest.raises(ValueError, match="--wide: given without --entity"):
        run(capsys, "forget", folder, "--source", "many.txt", "--wide")


def test_check_backup_import_and_export(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    assert run(capsys, "check", folder) == "sound\n"
    assert run(capsys, "check", folder, "--rebuild") == "sound\n"
    with MemoryGraph.open(folder / "my.db") as graph:
        graph.store.db.execute("INSERT INTO fact_words (rowid, words) VALUES (1000, 'nothing')")
        assert graph.check()
    assert run(capsys, "check", folder, "--rebuild") == "sound\n"
    copy = folder / "copy" / "my.db"
    assert run(capsys, "backup", folder, "--output", copy) == f"written to {copy}\n"
    run(capsys, "export", folder, "--jsonl", folder / "all.jsonl")
    main(["import", "--db", str(folder / "new.db"), "--input", str(folder / "all.jsonl")])
    for name in ("copy/my.db", "new.db"):
        main(["export", "--db", str(folder / name), "--jsonl", str(folder / "again.jsonl")])
        assert (folder / "again.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()
    with pytest.raises(ValueError, match="--ontology and --alone need --rdf"):
        run(capsys, "import", folder, "--input", folder / "all.jsonl", "--alone")
    said = run(capsys, "export", folder, "--graphml", folder / "all.graphml")
    elements = (folder / "all.graphml").read_text().count("<node ")
    elements += (folder / "all.graphml").read_text().count("<edge ")
    assert said == f"{elements} elements written to {folder / 'all.graphml'}\n"
    assert (folder / "all.graphml").stat().st_size > 1000
    said = run(capsys, "export", folder, "--html", folder / "all.html", "--max_nodes", 3)
    assert said.startswith("3 of ")
    for kind in ("jsonl", "graphml", "html"):  # as private as the memory itself
        assert (folder / f"all.{kind}").stat().st_mode & 0o777 == 0o600
    damaged = bytearray((folder / "new.db").read_bytes())
    damaged[100:4000] = bytes(3900)
    (folder / "my.db").write_bytes(damaged)
    with pytest.raises(SystemExit) as stopped:
        run(capsys, "check", folder)
    assert stopped.value.code == 1
    assert "damaged" in capsys.readouterr().out


def test_given_triples_and_extractors_that_lack_an_option(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "given.jsonl"
    triple = {"subject": "Anna", "relation": "lives in", "object": "Rome", "valid_from": "2015"}
    path.write_text(json.dumps({"triples": [triple]}) + "\n")
    run(capsys, "remember", folder, "--input", path, "--extractor", "given")
    assert "2015: Anna lives in Rome" in run(capsys, "history", folder, "Rome")
    with pytest.raises(ValueError, match="--extractor endpoint needs --base_url"):
        run(capsys, "remember", folder, "--input", path, "--extractor", "endpoint")
    batches = []
    monkeypatch.setattr(memory_commands, "remember", lambda *_, **to: batches.append(to["batch"]))
    server = ("--extractor", "endpoint", "--base_url", "http://localhost:1/v1", "--model", "small")
    for options in ((), server, (*server, "--batch", 3)):
        run(capsys, "remember", folder, "--input", path, *options)
    assert batches == [200, 8, 3]


def test_an_lm_and_a_server_extract_under_their_names(folder: Path, tiny_folder: str) -> None:
    server = {"base_url": "http://localhost:1/v1"}
    assert server_extractor("small", server, ["lives in"], []).name == "endpoint:small"
    with pytest.raises(ValueError, match="--extractor endpoint needs --model"):
        server_extractor(None, server, [], [])
    local = local_extractor(tiny_folder, "cpu", [], [])
    assert local.name == f"lm:{tiny_folder}"
    assert len(local.extract([Episode("Anna lives in Lima.")])) == 1


def test_conversations_become_turns_with_their_answers(folder: Path, capsys: Any) -> None:
    turns = (
        Turn("0", "I moved to Rome. Who wrote Dune?", (Answer("Frank Herbert"),)),
        Turn("1", "When was he born?", (Answer("1920"),)),
        Turn("2", "And where?"),
    )
    path = folder / "talk.jsonl"
    write_conversations(path, [Conversation("c7", "", turns)])
    run(capsys, "remember", folder, "--input", path)
    history = run(capsys, "history", folder, "Frank Herbert")
    assert "Who wrote Dune? Frank Herbert" in history
    assert "When was he born? 1920" in history
    assert "c7" in history
    assert "user" in run(capsys, "history", folder, "Rome")
    assert "nodes episodic\t2\n" in run(capsys, "stats", folder)
    listed = lines(run(capsys, "history", folder))
    assert [(row[1], row[2], row[4], row[5]) for row in listed] == [
        ("turn", "user", "c7", "as evidence")
    ] * 2
    assert listed[1][6] == "When was he born? 1920"


def test_what_is_no_turn_is_not_listed_as_one(folder: Path, capsys: Any) -> None:
    remember(capsys, folder)
    given = {"text": "Who wrote Dune?", "properties": {"question": "a property of the user's"}}
    (folder / "own.jsonl").write_text(json.dumps(given), encoding="utf-8")
    run(capsys, "remember", folder, "--input", folder / "own.jsonl")
    assert run(capsys, "history", folder) == ""
    assert json.loads(run(capsys, "history", folder, "--json")) == []


def test_a_question_without_a_name_is_answered_by_similarity_and_says_so(
    folder: Path, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With the sentence encoder, as a user asks."""
    text = (
        "There a queen opened some bridge.\n\nWe hope for the release on Friday.\n\n"
        "Ben sells maps.\n\nThe harbour was opened by the king."
    )
    (folder / "notes.txt").write_text(text, encoding="utf-8")
    run(capsys, "remember", folder, "--input", folder / "notes.txt")
    for question, answer in (
        ("Who opened the bridge?", "There a queen opened some bridge."),
        ("When is the release?", "We hope for the release on Friday."),
    ):
        with caplog.at_level(logging.INFO):
            asked = run(capsys, "ask", folder, "--no_reader", question)
        assert lines(asked)[0][2] == answer
        assert "names no known object: facts by similarity alone" in caplog.text
        caplog.clear()
    with caplog.at_level(logging.INFO):
        assert "Ben sells maps" in run(capsys, "ask", folder, "--no_reader", "What does Ben sell?")
        assert "The harbour was opened by the king" in run(
            capsys, "ask", folder, "--no_reader", "Who opened the harbour?"
        )
    assert "by similarity" not in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"text": "A."}\n{"txt": "B."}\n', r"a\.jsonl, line 2, field text: missing"),
        ("a.jsonl", '{"text": "A.", "time": "soon"}\n', r"line 1, field time: 'soon' given: not a"),
        ("a.jsonl", '{"text": " "}\n', "field text: empty"),
        ("a.jsonl", "nonsense\n", "line 1: not JSON"),
        ("a.jsonl", '{"text": "A.", "properties": []}\n', "field properties: must be an object"),
        ("none.txt", None, r"none\.txt: no such file"),
        ("a.txt", "\n \n", r"a\.txt: nothing to read in it"),
        ("a.md", "<!-- nothing -->", r"a\.md: nothing to read in it"),
        ("a.jsonl", "\n", r"a\.jsonl: nothing to read in it"),
        ("a.jsonl", '{"id": "a", "turns": [{"question": "Who?"}]}', "no turn with an answer in it"),
    ],
)
def test_bad_input_is_named(
    name: str, text: str | None, message: str, tmp_path: Path, capsys: Any
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        run(capsys, "remember", tmp_path, "--input", tmp_path / name)


def test_an_unknown_field_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "A."}\n{"text": "B.", "speakers": "Bo"}\n{"text": "C.", "speakers": ""}'
    )
    assert len(list(read_episodes(path))) == 3
    assert caplog.messages == [
        f"{path}, line 2, field speakers: unknown and not read; did you mean speaker? (2 times)"
    ]


def test_paragraphs_and_equal_texts_have_origins_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\ufeffOne\nline.\n\n \nTwo.\n\nTwo.\n", encoding="utf-8")
    episodes = list(read_episodes(path))
    assert [episode.text for episode in episodes] == ["One\nline.", "Two.", "Two."]
    assert len({episode.origin for episode in episodes}) == 3
    assert {episode.source for episode in episodes} == {"a.txt"}


def test_messages_of_a_chat_log_have_their_speakers_and_times(folder: Path, capsys: Any) -> None:
    log = folder / "chat.txt"
    log.write_text(
        "[12/03/2024, 18:02] Anna: I moved to Lisbon yesterday.\n"
        "[12/03/2024, 18:05] Ben: I live in Oslo.\nAnd I work for Telenor.\n"
        "[13/03/2024, 09:00] Anna: My cat is called Miso.\n",
        encoding="utf-8",
    )
    assert run(capsys, "remember", folder, "--input", log).startswith("3 episodes: ")
    shown = lines(run(capsys, "show", folder, "Anna") + run(capsys, "show", folder, "Ben"))
    facts = {row[2]: row[3:] for row in shown if row[1:2] == ["triplet"]}
    assert facts["2024-03-11: Anna moved to Lisbon"][0] == "from 2024-03-11"
    assert facts["Ben lives in Oslo"][0] == facts["Ben works for Telenor"][0]
    assert "2024-03-12T18:05 Ben chat.txt" in facts["Ben works for Telenor"][1]
    assert "Anna's cat is called Miso" in run(capsys, "show", folder, "Miso")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Garden.txt", "Garden\n\n3 May 2021\nPeas grew.\n\nIt rained.\n\n2021-05-04\n\nSnow."),
        ("Garden.md", "## 3 May 2021\nPeas grew.\n### Noon\nIt rained.\n## 2021-05-04\nSnow."),
        ("Garden.html", "<h1>3 May 2021</h1><p>Peas grew.<h2>Noon</h2><ul><li>It rained.</ul>"
         "<h1>2021-05-04</h1><p>Snow."),
        ("Garden.pdf", pdf_of_lines([(14, "3 May 2021"), (10, "Peas grew."), (-10, "Noon"),
         (10, "It rained."), (14, "2021-05-04"), (10, "Snow.")])),
    ],
)  # fmt: skip
def test_a_heading_that_is_a_date_is_the_time_of_what_stands_below(
    name: str, text: str | bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    times = {e.text: (e.time, e.properties.get("title")) for e in read_episodes(tmp_path / name)}
    title = None if name == "Garden.txt" else "Garden"
    assert times["Peas grew."] == ("2021-05-03", title)
    assert times["Snow."] == ("2021-05-04", title)
    assert [time for text, (time, _) in times.items() if "rained" in text] == ["2021-05-03"]


def test_a_date_of_a_chat_log_that_may_be_two_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "chat.txt"
    path.write_text("02/08/2024, 18:02 - A: Hi.\n02/08/2024, 18:03 - B: Hi.\n", encoding="utf-8")
    assert [episode.time for episode in read_episodes(path)] == [
        "2024-08-02T18:02", "2024-08-02T18:03",
    ]  # fmt: skip
    assert "dates such as 02/08/2024 are read with the day first" in caplog.text


def test_what_would_steer_a_terminal_is_shown_as_a_mark() -> None:
    assert clean_line("a\x1b[31mb\n\tc\x00") == "a\u241b[31mb c\u2400"


def test_a_table_fits_80_columns_without_colour(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(capsys, folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    table = re.sub(r"\x1b\[[0-9;]*m", "", run(capsys, "history", folder, "Anna"))
    assert "text" in table.splitlines()[1]
    assert max(map(len, table.splitlines())) <= 80
    assert "2021-06" in table


def test_stopped_in_the_middle_it_goes_on_with_the_same_command(tmp_path: Path) -> None:
    path, db = tmp_path / "many.txt", tmp_path / "my.db"
    path.write_text("\n\n".join(f"Person {i} lives in City {i}." for i in range(20_000)))
    command = [sys.executable, "-m", "turngraph.memory", "remember", "--db", str(db)]
    command += ["--input", str(path), "--batch", "20"]

    def count() -> int:
        if not db.exists():
            return 0
        with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=PATIENCE)) as reader:
            try:
                return reader.execute("SELECT count(*) FROM episodes").fetchone()[0]
            except sqlite3.OperationalError:  # it is being made
                return 0

    for number in (signal.SIGTERM, signal.SIGINT):
        before = count()
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        wait_until(lambda before=before: count() >= before + 40, process)
        process.send_signal(number)
        said, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 75, log
        assert "the same command resumes" in log
        if number == signal.SIGTERM:
            assert int(said.split()[0]) == count()
    assert 40 <= count() < 20_000
    with MemoryGraph.open(db) as graph:
        assert graph.check() == []
        texts = [t for (t,) in graph.store.db.execute("SELECT text FROM nodes WHERE type = 2")]
    assert sorted(texts, key=lambda t: int(t.split()[1])) == [
        f"Person {i} lives in City {i}." for i in range(len(texts))
    ]


def test_no_part_of_an_option_is_taken_for_it(capsys: Any, folder: Path) -> None:
    remember(capsys, folder)
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "forget", folder, "--source", "story.txt", "--ye")
    assert "unknown option --ye (did you mean --yes?)" in capsys.readouterr().err
    assert "story.txt" in run(capsys, "show", folder, "Anna")


@pytest.mark.parametrize(("command", "option"), [("ask", "--as_of"), ("remember", "--time")])
def test_a_time_that_is_none_is_refused_by_its_option(
    capsys: Any, folder: Path, command: str, option: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(capsys, command, folder, option, "yesterday")
    assert f"argument {option}: 'yesterday' given: not a time" in capsys.readouterr().err
    assert not (folder / "my.db").exists()


def test_a_number_beyond_any_row_is_refused() -> None:
    assert (row_id("0"), row_id(f"#{2**63 - 1}")) == (0, 2**63 - 1)
    for number in (-1, 2**63):
        with pytest.raises(ArgumentTypeError, match="nothing has such a number"):
            row_id(str(number))


def test_episodes_are_named_as_they_are_printed(capsys: Any, folder: Path) -> None:
    remember(capsys, folder)
    printed = run(capsys, "history", folder, "Bert")
    [number] = set(re.findall(r"#\d+ 2019", printed))
    run(capsys, "forget", folder, "--episode", number.split()[0], "--yes")
    with pytest.raises(ValueError, match="Bert"):
        run(capsys, "history", folder, "Bert")


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(capsys: Any, folder: Path) -> None:
    remember(capsys, folder)
    command = [sys.executable, "-m", "turngraph.memory", "history", "--db", folder / "my.db"]
    process = subprocess.Popen(
        [*map(str, command), "Anna"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read().splitlines()[1:] == []  # the names of the columns
    assert process.wait() == 128 + signal.SIGPIPE


@pytest.mark.parametrize("options", [(), ("--ray", "local")])
def test_each_file_is_remembered_in_a_graph_of_its_own(
    options: tuple[str, ...], ray: StandIn, folder: Path, capsys: Any
) -> None:
    inputs = [str(folder / name) for name in ("story.txt", "letters.jsonl")]
    argv = ["remember_all", "--db_dir", str(folder / "all" / "dbs"), "--input", *inputs, *options]
    with pytest.raises(SystemExit) as stopped:
        main([*argv, "--max_minutes", "1e-9"])
    assert stopped.value.code == 75
    assert "letters" not in capsys.readouterr().out
    main([*argv[:4], inputs[0], *options, "--max_minutes", "1e-9"])  # no file is left: no stop
    assert capsys.readouterr().out.count("0 episodes") == 1
    main(argv)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{inputs[0]}: 0 episodes")
    assert second.startswith(f"{inputs[1]}: 1 episode: ")
    assert bool(ray.most_waiting) == bool(options)
    for name, count in (("story", 2), ("letters", 1)):
        with MemoryGraph.open(folder / "all" / "dbs" / f"{name}.db", read_only=True) as graph:
            assert graph.stats().nodes["episodic"] == count
    with pytest.raises(ValueError, match=r"would both be remembered in .*story\.db"):
        main([*argv, "--input", inputs[0], str(folder / "other" / "story.md")])


def test_files_are_counted_on_a_bar_and_told_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    told: list[str] = []

    class Out(io.StringIO):
        def flush(self) -> None:
            told.append(self.getvalue())

    @contextmanager
    def progress(*given: object, delay: float) -> Iterator[Any]:
        shown.append((*given, delay))
        yield SimpleNamespace(update=lambda number=1: shown.append(number))

    monkeypatch.setattr(remember_commands, "progress", progress)
    monkeypatch.setattr("sys.stdout", Out())
    inputs = [str(folder / name) for name in ("story.txt", "letters.jsonl")]
    main(["remember_all", "--db_dir", str(folder / "all" / "dbs"), "--input", *inputs])
    assert shown == [(2, "remembering", "files", 2), 1, 1]
    assert [text.count("\n") for text in dict.fromkeys(told)][:2] == [1, 2]


@pytest.mark.parametrize(
    "command",
    [
        ("show", "Anna"),
        ("history", "Anna"),
        ("history",),
        ("stats",),
        ("check",),
        ("backup", "--output", "copy.db"),
        ("export", "--jsonl", "all.jsonl"),
        ("export", "--graphml", "all.graphml"),
        ("export", "--html", "all.html"),
        ("export", "--trig", "all.trig"),
        ("ask", "--no_embed", "Who?"),
        ("sparql", "SELECT * { ?a ?b ?c }"),
        ("ontology", "coverage"),
        ("push", "--endpoint", "http://127.0.0.1:9/query"),
    ],
    ids=" ".join,
)
def test_commands_that_read_leave_an_empty_file_as_it_is(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened for writing, it would become an empty graph."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.db").touch()
    with pytest.raises(UserError, match="empty; open it for writing once"):
        main([*command, "--db", "my.db"])
    assert (tmp_path / "my.db").stat().st_size == 0
