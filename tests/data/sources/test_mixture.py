"""The mixture: what is drawn, and questions whose evidence is removed."""

from pathlib import Path

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.sources.mixture import main
from turngraph.data.types import (
    NOT_IN_EVIDENCE,
    Answer,
    Conversation,
    Entity,
    Evidence,
    Turn,
)

TOWNS = ("Lima", "Oslo", "Rome", "Kyiv", "Bern", "Riga")


def passage(number: int) -> Evidence:
    town = Entity(f"Q{number}", TOWNS[number])
    name = Entity(f"person {number}", f"Person {number}")
    return Evidence(f"p{number}", f"Person {number} lives in {town.label}.", "text", (town, name))


POOL = tuple(passage(number) for number in range(len(TOWNS)))


def turn(number: int, label: str | None = None) -> Turn:
    answer = Answer(label or TOWNS[number], None if label else f"Q{number}")
    return Turn(str(number), f"Where does person {number} live?", (answer,), "text")


def write(path: Path, *conversations: tuple[Turn, ...]) -> str:
    made = [Conversation(f"c{i}", "towns", turns, POOL) for i, turns in enumerate(conversations)]
    write_conversations(path, made)
    return str(path)


def mixed(folder: Path, *options: str) -> list[Conversation]:
    output = folder / "mixed.jsonl"
    main([*options, "--output", str(output)])
    return read_conversations(output)


def test_questions_are_drawn_and_later_turns_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.jsonl", (turn(0), turn(1)), (turn(2), turn(3)), (turn(4), turn(5)))
    found = mixed(tmp_path, "--source", f"towns={path}:3", "--unanswerable", "0")
    assert sorted(len(c.turns) for c in found) == [1, 2]
    assert all(c.id.startswith("towns/c") and c.evidence == POOL for c in found)
    all_, source = capsys.readouterr().out.splitlines()[::-1][:2]
    assert source.split() == ["towns", "2", "3", "0", path]
    assert all_.split() == ["all", "2", "3", "0"]


def test_unanswerable_questions_lose_their_evidence_and_later_turns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *[(turn(0), turn(1), turn(2))] * 20)
    found = mixed(tmp_path, "--source", f"towns={path}:30", "--unanswerable", "0.3")
    questions = [one for c in found for one in c.turns]
    assert len(questions) == 30
    cut = [c for c in found if c.turns[-1].answers == (Answer(NOT_IN_EVIDENCE),)]
    assert 9 <= len(cut) <= 11
    assert {len(c.turns) for c in cut} == {1, 2, 3}
    for conversation in cut:
        number = len(conversation.turns) - 1
        assert conversation.turns[-1].source is None
        assert [p.id for p in POOL if p not in conversation.evidence] == [f"p{number}"]
        assert conversation.turns[:-1] == (turn(0), turn(1))[:number]
    assert all(c.evidence == POOL for c in found if c not in cut)


def test_what_cannot_be_removed_stays(tmp_path: Path) -> None:
    everywhere = write(tmp_path / "a.jsonl", (turn(0, "in"),), (turn(0, "yes"),))
    found = mixed(tmp_path, "--source", f"a={everywhere}", "--unanswerable", "0.9")
    assert sorted(c.turns[0].answers[0].label for c in found) == ["in", "yes"]
    repeated = write(tmp_path / "b.jsonl", (turn(0), turn(0)))  # its passage answers both turns
    [one] = mixed(tmp_path, "--source", f"b={repeated}", "--unanswerable", "0.9", "--seed", "1")
    assert one.turns[0].answers == (Answer(NOT_IN_EVIDENCE),)
    assert len(one.turns) == 1


def test_a_question_that_names_nothing_of_its_passages_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Turn("0", "Which town comes first?", (Answer("Lima", "Q0"),))
    path = write(tmp_path / "a.jsonl", (first,), (first,))
    for one in mixed(tmp_path, "--source", f"a={path}", "--unanswerable", "0.9"):
        assert (one.turns, one.evidence) == ((first,), POOL)
    assert f"{path}: only 0 of 2 questions could be made unanswerable" in caplog.text


def test_words_are_found_without_an_entity(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (turn(3, "Person 3 lives"),))
    [one] = mixed(tmp_path, "--source", f"a={path}", "--unanswerable", "0.9")
    assert one.turns[0].answers == (Answer(NOT_IN_EVIDENCE),)
    assert "p3" not in {p.id for p in one.evidence}


def test_a_source_with_unanswerable_questions_stays_as_it_is(tmp_path: Path) -> None:
    own = write(tmp_path / "a.jsonl", (turn(0, NOT_IN_EVIDENCE),), (turn(1),))
    found = mixed(tmp_path, "--source", f"a={own}", "--unanswerable", "0.9")
    assert {c.turns[0].answers[0].label for c in found} == {NOT_IN_EVIDENCE, "Oslo"}
    assert all(c.evidence == POOL for c in found)


def test_list_questions_can_be_left_out_of_the_count(tmp_path: Path) -> None:
    both = Turn("0", "Where?", (Answer("Lima"), Answer("Oslo")))
    path = write(tmp_path / "a.jsonl", (both, turn(2), both), (both,))
    given = ("--source", f"a={path}", "--unanswerable", "0")
    assert sorted(len(c.turns) for c in mixed(tmp_path, *given)) == [1, 3]
    [one] = mixed(tmp_path, *given, "--single_answers")
    assert [len(turn.answers) for turn in one.turns] == [2, 1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a={path}:7", "has 2 questions that can be drawn, --source a asks for 7"),
        ("a={path}:0", "must be NAME=FILE:QUESTIONS"),
        ("{path}", "must be NAME=FILE:QUESTIONS"),
        ("a={path}.gone:1", "no such file"),
    ],
)
def test_bad_sources_are_named(tmp_path: Path, source: str, said: str) -> None:
    path = write(tmp_path / "a.jsonl", (turn(0), turn(1)))
    with pytest.raises(UserError, match=said):
        mixed(tmp_path, "--source", source.format(path=path), "--unanswerable", "0")


def test_names_of_sources_and_the_share_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (turn(0),))
    with pytest.raises(UserError, match="a is given twice"):
        mixed(tmp_path, "--source", f"a={path}", "--source", f"a={path}")
    with pytest.raises(UserError, match="--unanswerable: must be at least 0"):
        mixed(tmp_path, "--source", f"a={path}", "--unanswerable", "1")
