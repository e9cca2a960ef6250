"""Questions made from tables: each answer is worked out from the rows again."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path

import pytest

from turngraph.data.jsonlines import read_conversations, write_conversations
from turngraph.data.sources.table_questions import (
    KINDS,
    Row,
    Talk,
    main,
    make_conversations,
    tables_of,
)
from turngraph.data.types import Answer, Conversation, Evidence, Turn
from turngraph.tests.tables import CELLS, HEADERS, passage, pool


def talk(key: str = "Team", row: int = 0) -> Talk:
    [rows] = tables_of(pool())
    columns = [header for header in HEADERS if header != key]
    return Talk(random.Random(0), rows, key, columns, rows, rows[row], kinds=["which"])


def asked(kind: str, column: str, row: int = 0) -> tuple[str, str] | None:
    """The question of a kind and its answer."""
    about = talk(row=row)
    about.ask(kind, column)
    return (about.turns[0][0], about.turns[0][1][0].label) if about.turns else None


def test_tables_are_rows_side_by_side_with_like_headers() -> None:
    other = [passage("League", 10 + n, [str(n), f"x{n}"], ["Rank", "Name"]) for n in range(4)]
    few = [passage("Cup", n, ["a", "b"], ["Year", "Winner"]) for n in range(3)]
    short = [*CELLS[:3], ["Whites", "9", "", ""], CELLS[4]]
    tables = tables_of([*pool(rows=short), *other, *few, *pool("Second")])
    assert [len(rows) for rows in tables] == [5, 4, 5]
    assert tables[0][3].cells == {"Team": "Whites", "Wins": "9"}
    assert tables[0][0].entities["Reds"].label == "Reds"


def test_numbers_of_cells() -> None:
    for cell, number in (("1,003", 1003), ("−4", -4), ("$ 5.50 (est.)", 5.5), ("about 5", None)):
        assert Row({"a": cell}, {}).number("a") == number
    for cell, number in (
        ("31 August 2003", None),
        ("8:30", None),
        ("91 kg", 91),
        ("2003–04", None),
    ):
        assert Row({"a": cell}, {}).number("a") == number
    assert Row({}, {}).number("a") is None


@pytest.mark.parametrize(
    ("kind", "column", "row", "answer"),
    [
        ("most", "Wins", 0, "Greens"),
        ("least", "Wins", 0, "Blacks"),
        ("most", "City", 0, None),  # no numbers
        ("least", "Founded", 3, "Greens"),
        ("its", "City", 1, "Oslo"),
        ("its", "Wins", 2, "1,003"),
        ("same", "City", 0, "Greens"),
        ("same", "City", 1, None),
        ("same", "Wins", 0, None),
        ("next", "City", 0, "Blues"),
        ("next", "City", 4, None),
        ("before", "City", 4, "Whites"),
        ("before", "City", 0, None),
    ],
)
def test_what_a_table_answers(kind: str, column: str, row: int, answer: str | None) -> None:
    found = asked(kind, column, row)
    assert (None if found is None else found[1]) == answer


def test_a_row_without_a_name_keeps_others_from_being_the_most() -> None:
    rows = [*CELLS, ["Greens", "2,000", "Lima", "1870"]]  # two rows of one name
    [found] = tables_of(pool(rows=rows))
    about = Talk(random.Random(0), found, "Team", ["Wins"], found[:2], found[0], kinds=["which"])
    about.ask("most", "Wins")
    assert about.turns == []
    about = Talk(random.Random(0), found, "Team", ["Wins"], found, found[0], kinds=["which"])
    about.ask("most", "Wins")
    assert [label.label for _, labels in about.turns for label in labels] == ["Greens"]


def test_another_row_of_the_same_is_asked_for_behind_a_row_only() -> None:
    for kinds, num in (([], 0), (["list"], 0), (["which"], 1)):
        about = talk(row=0)
        about.kinds[:] = kinds
        about.ask("same", "City")
        assert len(about.turns) == num


def test_questions_about_a_drawn_row_name_it() -> None:
    by_name = {cells[0]: dict(zip(HEADERS, cells, strict=True)) for cells in CELLS}
    for seed in range(40):
        about = talk()
        about.rng.seed(seed)
        for kind in ("which", "cell", "more", "less"):
            before = len(about.turns)
            about.ask(kind, "Wins" if kind in ("more", "less") else "City")
            if len(about.turns) == before:
                continue
            question, [answer] = about.turns[-1]
            if kind == "which":
                city = by_name[answer.label]["City"]
                assert city.lower() in question.lower()
                assert city != "Lima"  # two rows have it
            elif kind == "cell":
                [named] = [name for name in by_name if name.lower() in question.lower()]
                assert by_name[named]["City"] == answer.label
            else:
                two = [name for name in by_name if name.lower() in question.lower()]
                wins = {
                    n: float(by_name[n]["Wins"].replace(",", "").replace("−", "-")) for n in two
                }
                assert len(two) == 2
                assert answer.label == (max if kind == "more" else min)(wins, key=wins.get)
    assert set(KINDS) >= {"which", "cell", "its", "most", "least", "more", "less", "same"}


def test_conversations_follow_from_pools_and_seed(caplog: pytest.LogCaptureFixture) -> None:
    pools = [pool("League"), pool("Cup"), (Evidence("x", "Peru, capital, Lima", "kb"),)]
    with caplog.at_level(logging.INFO):
        made = make_conversations(pools, 60)
    assert made == make_conversations(pools, 60)
    assert made != make_conversations(pools, 60, seed=1)
    single = [turn for c in made for turn in c.turns if len(turn.answers) == 1]
    assert 60 <= len(single) <= 63
    assert str(len(made)) in caplog.text
    assert {id(c.evidence) for c in made} == {id(of_one) for of_one in pools[:2]}
    assert len({c.id for c in made}) == len(made)
    shares = Counter(c.evidence[0].id for c in made)
    assert max(shares.values()) - min(shares.values()) <= 0.2 * len(made)
    entities = {e.id for of_one in pools for p in of_one for e in p.entities}
    assert all(answer.id in entities for turn in single for answer in turn.answers)


def test_what_has_no_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="0 can be made, not 5"):
        make_conversations([(Evidence("x", "Peru, capital, Lima", "kb"),)], 5)
    same = [["Reds", "1", "Lima", "1901"]] * 5  # no column names the rows
    with pytest.raises(ValueError, match="0 can be made"):
        make_conversations([pool(rows=same)], 5)


def test_as_a_command(tmp_path: Path) -> None:
    turns = (Turn("0", "Who asked this?", (Answer("Somebody"),)),)
    both = [Conversation(name, "", turns, pool(name)) for name in ("a", "b")]
    write_conversations(tmp_path / "in.jsonl", both)
    paths = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    main([*paths, "--num_questions", "20"])
    found = read_conversations(tmp_path / "out.jsonl")
    assert sum(len(turn.answers) == 1 for c in found for turn in c.turns) >= 20
    assert not any("asked" in turn.question for c in found for turn in c.turns)
    assert found[0].evidence == both[0].evidence
    with pytest.raises(ValueError, match="is also the input"):
        main([*paths[:3], paths[1]])
    write_conversations(tmp_path / "in.jsonl", [Conversation("c", "", turns)])
    with pytest.raises(
        ValueError, match=r"in.jsonl: data.table_questions: 0 can be made, not 8000"
    ):
        main(paths)
