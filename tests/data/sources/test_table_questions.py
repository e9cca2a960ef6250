"""Questions made from tables: each answer is worked out from the rows again."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

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
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
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
        ("before", "City", 1, "Reds"),
        ("next", "City", 3, "Blacks"),
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


def rows_of(*rows: dict[str, str], nameless: str = "") -> list[Row]:
    """Rows by header; a column's cells have no entities where it is nameless."""
    return [
        Row(row, {cell: Entity(cell, cell) for name, cell in row.items() if name != nameless})
        for row in rows
    ]


def table(**columns: list[str]) -> list[Row]:
    """Rows by column; an empty cell is none."""
    cells = zip(*columns.values(), strict=True)
    return rows_of(*({n: c for n, c in zip(columns, row, strict=True) if c} for row in cells))


class Given(random.Random):
    """Numbers that are given; of a choice it takes the last, and keeps what there was."""

    def __init__(self, *numbers: float) -> None:
        super().__init__(0)
        self.numbers, self.choices = list(numbers), []

    def random(self) -> float:
        return self.numbers.pop(0)

    def choice(self, options: Any) -> Any:
        self.choices.append(options)
        return options[-1]


def about(rows: list[Row], key: str = "Team", seed: int = 0) -> Talk:
    """A conversation after a question about the first row; every row has a name."""
    columns = [header for header in rows[0].cells if header != key]
    return Talk(random.Random(seed), rows, key, columns, rows, rows[0], kinds=["which"])


def answers_to(kind: str, column: str, rows: list[Row], named: list[Row] | None = None) -> set[str]:
    """The answers to a kind of question over many draws; "" where nothing is asked."""
    found = set()
    for seed in range(30):
        one = about(rows, seed=seed)
        one.named = rows if named is None else named
        one.ask(kind, column)
        found.add(one.turns[0][1][0].label if one.turns else "")
    return found


TEAMS = ["Reds", "Blues", "Greens", "Whites", "Blacks"]


def test_a_row_belongs_to_a_table_if_half_of_its_headers_do() -> None:
    first = [passage("League", n, ["a", f"b{n}"], ["Team", "Wins"]) for n in range(4)]
    for headers, sizes in (
        (["Team", "City"], [8]),  # one of two
        (["Team", "City", "Year"], [4, 4]),  # one of three
        (["Team", "Wins", "City", "Year"], [8]),
    ):
        others = [passage("League", 4 + n, [f"{h}{n}" for h in headers], headers) for n in range(4)]
        assert [len(rows) for rows in tables_of([*first, *others])] == sizes, headers


def test_a_column_counts_if_four_in_five_rows_have_it() -> None:
    rows = table(
        Team=TEAMS, City=["Lima", "Oslo", "Rome", "Cairo", ""], Cup=["1", "2", "3", "", ""]
    )
    begun = Talk.begin(random.Random(0), rows)
    assert begun is not None
    assert {begun.key, *begun.columns} == {"Team", "City"}
    assert Talk.begin(random.Random(0), table(Team=TEAMS, Cup=["1", "2", "3", "", ""])) is None
    assert Talk.begin(random.Random(0), table(Team=TEAMS)) is None


@pytest.mark.parametrize(
    ("cities", "keys"),
    [
        (["Lima", "Oslo", "Lima", "Cairo", "Quito"], {"Team", "City"}),  # four in five differ
        (["Lima", "Oslo", "Lima", "Cairo", "Cairo"], {"Team"}),
    ],
)
def test_a_key_column_differs_in_four_of_five_rows(cities: list[str], keys: set[str]) -> None:
    rows = table(Team=TEAMS, City=cities, Same=["x"] * 5)
    begun = [Talk.begin(random.Random(seed), rows) for seed in range(60)]
    assert {one.key for one in begun if one is not None} <= keys
    drawn = Given(0.95)
    Talk.begin(drawn, rows)
    assert set(drawn.choices[0]) == keys


def test_a_key_is_mostly_the_first_column_of_words() -> None:
    """Of ten draws six take the first, three any column of words, one any that tells rows apart."""
    years = ["1901", "1950", "1877", "1999", "1923"]
    mixed = ["12", "7", "many", "few", "none"]
    rows = table(Founded=years, Team=TEAMS, Wins=mixed, Place=["1", "2", "3", "4", "some"])
    for draw, options in (
        (0.0, None),
        (0.59, None),
        (0.6, ["Team", "Wins"]),
        (0.89, ["Team", "Wins"]),
        (0.9, ["Founded", "Team", "Wins", "Place"]),
    ):
        drawn = Given(draw)
        begun = Talk.begin(drawn, rows)
        assert begun is not None
        assert begun.key == ("Team" if options is None else options[-1])
        assert drawn.choices[:-1] == ([] if options is None else [options])
        assert begun.columns == [h for h in rows[0].cells if h != begun.key]
        assert begun.row is begun.named[-1]
    # half words is not enough; without any column of words it is one of numbers
    half = table(Place=["1", "2", "x", "y"], Team=TEAMS[:4])
    assert Talk.begin(Given(0.0), half).key == "Team"
    numbers = table(Founded=years, Wins=["5", "4", "3", "2", "1"])
    assert Talk.begin(Given(0.0), numbers).key == "Founded"


def test_rows_are_named_by_entities_that_no_other_row_has() -> None:
    rows = table(Team=["Reds", "Blues", "Greens", "Greens", "Blacks"], Wins=["1"] * 5)
    begun = Talk.begin(Given(0.0), rows)
    assert begun is not None
    assert [row.cells["Team"] for row in begun.named] == ["Reds", "Blues", "Blacks"]
    # two names are too few, and a cell without an entity is none
    unnamed = [rows[0], Row(rows[1].cells, {}), rows[2], Row(rows[4].cells | {"Team": "X"}, {})]
    assert Talk.begin(Given(0.0), unnamed) is None
    five = [*rows[:2], Row(rows[2].cells, {}), *table(Team=["Whites"], Wins=["1"]), rows[4]]
    begun = Talk.begin(Given(0.0), five)
    assert begun is not None
    assert [row.cells["Team"] for row in begun.named] == ["Reds", "Blues", "Whites", "Blacks"]


def test_a_list_has_the_first_twelve_names_in_order() -> None:
    names = [f"Team {letter}" for letter in "ABCDEFGHIJKLMNO"]
    one = about(table(Team=names, Wins=["1"] * len(names)))
    one.kinds.clear()
    one.ask_for_all()
    [(question, answers)] = one.turns
    assert [answer.label for answer in answers] == names[:12]
    assert "team" in question
    assert one.kinds == ["list"]


def test_nine_questions_of_ten_are_in_lower_case() -> None:
    for draw, lower in ((0.0, True), (0.89, True), (0.9, False), (0.99, False)):
        one = about(table(Team=TEAMS, Wins=["1"] * 5))
        one.rng = Given(draw)
        one.ask("its", "Wins")
        assert (one.turns[0][0] == one.turns[0][0].lower()) == lower, draw


def test_which_row_is_asked_for_by_cells_that_no_other_row_has() -> None:
    rows = table(Team=TEAMS, City=["Lima", "Oslo", "Lima", "", "Quito"])
    assert answers_to("which", "City", rows) == {"Blues", "Blacks"}
    assert answers_to("which", "City", rows, named=rows[:2]) == {"Blues"}
    assert answers_to("which", "City", rows, named=[rows[0], rows[2], rows[3]]) == {""}


@pytest.mark.parametrize(
    ("wins", "most", "least"),
    [
        (["-3", "0", "-1", "-2", "-4"], "Blues", "Blacks"),
        (["3", "0", "1", "2", "4"], "Blacks", "Blues"),
        (["0", "0", "-1", "-2", "-4"], "", "Blacks"),  # two have the most
        (["4", "3", "1", "0", "0"], "Reds", ""),
        (["4", "3", "3", "3", "1"], "Reds", "Blacks"),
        (["4", "3", "2", "1", "many"], "Reds", "Whites"),  # four numbers in five rows
        (["4", "3", "2", "few", "many"], "", ""),
    ],
)
def test_the_most_and_the_least(wins: list[str], most: str, least: str) -> None:
    rows = table(Team=TEAMS, Wins=wins)
    assert answers_to("most", "Wins", rows) == {most}
    assert answers_to("least", "Wins", rows) == {least}


@pytest.mark.parametrize(
    ("wins", "more", "less"),
    [
        (["0", "-1", "", "", ""], "Reds", "Blues"),
        (["-2", "0", "", "", ""], "Blues", "Reds"),
        (["0", "0", "", "", ""], "", ""),  # equal
        (["0", "", "", "", ""], "", ""),  # only one
    ],
)
def test_two_rows_are_compared_by_their_numbers(wins: list[str], more: str, less: str) -> None:
    rows = table(Team=TEAMS, Wins=wins)
    assert answers_to("more", "Wins", rows) == {more}
    assert answers_to("less", "Wins", rows) == {less}


def test_only_rows_with_a_name_are_compared() -> None:
    rows = table(Team=TEAMS, Wins=["1", "2", "3", "4", "5"])
    assert answers_to("least", "Wins", rows, named=rows[1:]) == {""}
    assert answers_to("least", "Wins", rows, named=[rows[0], rows[2]]) == {"Reds"}
    assert answers_to("more", "Wins", rows, named=rows[1:4]) == {"Greens", "Whites"}
    assert answers_to("less", "Wins", rows, named=rows[1:4]) == {"Blues", "Greens"}


def test_as_many_questions_are_made_as_asked_for_and_no_lists_alone() -> None:
    rows = [["Reds", "a"], ["Blues", "a"], ["Greens", "a"], ["Whites", "a"]]
    few = tuple(passage("League", n, cells, ["Team", "Kind"]) for n, cells in enumerate(rows))
    for num in range(1, 25):
        made = make_conversations([few], num)
        singles = [sum(len(turn.answers) == 1 for turn in one.turns) for one in made]
        assert all(singles)
        assert sum(singles[:-1]) < num <= sum(singles)


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


def test_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    for given, missing in ((paths[:2], "--output"), (paths[2:], "--input")):
        with pytest.raises(SystemExit, match="2"):
            main(given)
        assert f"required: {missing}" in capsys.readouterr().err
    write_conversations(tmp_path / "in.jsonl", [Conversation("c", "", turns)])
    with pytest.raises(
        ValueError, match=r"in.jsonl: data.table_questions: 0 can be made, not 8000"
    ):
        main(paths)
