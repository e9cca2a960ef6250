"""Questions to computed answers: each operation, partial dates, and what is not computed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.model_extractor import Prompt
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Fact
from turngraph.data.memory_graph.ontology.compute import Computed, compute
from turngraph.data.memory_graph.ontology.lens import Lens
from turngraph.data.memory_graph.ontology.model_plan import ModelPlans
from turngraph.data.memory_graph.ontology.ontology import load_ontology
from turngraph.data.memory_graph.ontology.plain_question import plain_question
from turngraph.data.memory_graph.ontology.question_plan import make_plans
from turngraph.data.memory_graph.ontology.selected_facts import units_between
from turngraph.data.memory_graph.ontology.typed_plan import NoPlan
from turngraph.data.memory_graph.times import start
from turngraph.memory import main
from turngraph.tests.data.memory_graph.chat_server import Answer, chat_server
from turngraph.tests.data.memory_graph.test_lens import BUYS, LIVES, MOVES, remember, says

TRIPS = [
    says("Anna", "visited", "Rome", since="2023-02-03"),
    says("Anna", "flew to", "Paris", since="2023-05"),
    says("Anna", "traveled to", "Berlin", since="2021"),
    says("Anna", "travelled to", "Lima"),
]
OTHERS = [
    says("Anna", "married", "Carl", since="2020-06-20"),
    says("Anna", "works at", "Statoil", since="2018-05"),
    says("Bob", "was born on", "4 May 1988"),
    says("Zoe", "was born on", "1990"),
    says("Bob", "read", "three books", since="2023"),
    says("Anna", "owns", "Volvo"),
    says("Anna", "has sister", "Eva"),
    says("Anna", "has sister", "Ida"),
    says("Anna", "likes", "tea", hypothesis=True),
    says("Anna", "bought", "lamp", since="2021-02-01"),
    says("Anna", "bought for", "€50", since="2021-02-01"),
    says("Anna", "bought", "lamp", since="2021-02-03"),
    says("Anna", "weighed", "70 kg", since="2020-01-05", valid_to="2020-01-06"),
    says("Anna", "weighed", "66 kg", since="2020-03-05", valid_to="2020-03-06"),
    says("Bob", "paid", "20 euros", since="2022-05-01"),
    says("Bob", "paid for", "ticket", since="2022-05-01"),
    says("Bob", "paid", "10 dollars", since="2023-05-01"),
    says("Zoe", "met", "Bob", since="2021"),
    says("Zoe", "met", "Bob", since="2023-05-01"),
    says("Zoe", "met", "Ole", since="2023-06-01"),
]


@pytest.fixture(scope="module")
def lens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lens]:
    with MemoryGraph.open(tmp_path_factory.mktemp("compute") / "my.db") as graph:
        remember(graph, [LIVES], [MOVES], BUYS, *[[trip] for trip in TRIPS], OTHERS)
        yield Lens(graph.store, load_ontology())


def answer(lens: Lens, question: str, as_of: str | None = "2024-06") -> Computed:
    return compute(lens, question, as_of)


@pytest.mark.parametrize(
    ("question", "operation", "expected"),
    [
        ("Where does Anna live?", "value", "Bergen"),
        ("Where did Anna live in 2020?", "value", "Oslo"),
        ("Who lives in Bergen?", "value", "Anna"),
        ("Who is Carl married to?", "value", "Anna"),
        ("Where does Anna work?", "value", "Statoil"),
        ("When was Bob born?", "value", "1988-05-04"),
        ("When did Anna last travel?", "latest", "2023-05"),
        ("What was the last place that Anna visited?", "latest", "Paris"),
        ("Which place did Anna visit first?", "first", "Berlin"),
        ("Where did Anna fly to in 2023?", "list", "Paris"),
        ("List all trips of Anna in 2023.", "list", "Rome, Paris"),
        ("Does Anna own a Volvo?", "exists", "yes"),
        ("Did Anna buy a bicycle?", "exists", "yes"),
        ("How many trips did Anna make in 2023?", "count", "2 to 3"),
        ("Number of Anna's trips in 2023?", "count", "2 to 3"),
        ("Total trips of Anna in 2023?", "count", "2 to 3"),
        ("How often did Anna visit Rome?", "count", "1"),
        ("How many times did Anna fly to Rome in 2019?", "count", None),
        ("How many flights did Anna take in 2019?", "count", "0"),
        ("How many books did Bob read in 2023?", "count", "3"),
        ("How many sisters has Anna?", "count", "2"),
        ("How many trips did Anna make before 2023?", "count", "1 to 2"),
        ("How many trips did Anna make after 2022?", "count", "2 to 3"),
        ("How many trips did Anna make since 2021?", "count", "3 to 4"),
        ("When did Anna travel in 2023?", "since", "2023-02-03, 2023-05"),
        (
            "In what order did Anna marry Carl, visit Rome and move to Bergen?",
            "order",
            "Anna marry Carl, then move to Bergen, then visit Rome",
        ),
        ("How many times did Anna move to Oslo?", "count", None),
        ("How many times did Anna move to Bergen?", "count", "1"),
        ("How long did Anna live in Oslo?", "duration", "38 to 39 months"),
        ("How many years has Anna lived in Bergen?", "duration", "2 years"),
        ("Since when has Anna worked at Statoil?", "since", "2018-05"),
        ("When did Anna move to Bergen?", "since", "2022-06"),
        ("Did Anna marry Carl before she moved to Bergen?", "before", "yes"),
        ("Did Anna marry Carl after she moved to Bergen?", "after", "no"),
        (
            "Which came first, Anna's trip to Rome or her flight to Paris?",
            "order",
            "Anna's trip to Rome, then her flight to Paris",
        ),
        ("How much did Anna spend in total?", "sum", "350 euros"),
        ("How much did Anna pay for a bicycle?", "sum", "300 euros"),
        ("How much did Anna spend in April 2020?", "sum", "300 euros"),
        ("How much did Anna spend before 3 February 2021?", "sum", "350 euros"),
        ("How much did Anna spend before 15 April 2020?", "sum", "0 to 300 euros"),
        ("How much did Bob pay for a ticket?", "sum", "20 euros"),
        ("What was the cheapest thing Anna bought?", "min", "lamp"),
        ("What is the most Anna paid for a thing?", "max", "300 euros"),
        ("What was Anna's lowest weight?", "min", "66 kg"),
        ("What was Anna's average weight in 2020?", "mean", "68 kg"),
        ("How much does Anna pay on average?", "mean", "175 euros"),
        ("What did Anna buy most often?", "most", "lamp"),
        ("Who did Zoe meet most often?", "most", "Bob"),
        ("Who did Zoe meet most often in 2023?", "most", "Bob, Ole"),
        ("How often a month did Zoe meet Ole in 2023?", "rate", "0.08 a month"),
        ("How many times per year did Anna visit Rome since 2023?", "rate", "0.67 a year"),
        ("How many people did Zoe meet?", "count", "2"),
        ("How many lamps did Anna buy?", "count", "2"),
        ("How old is Bob?", "age", "36 years"),
        ("Who employs Anna?", "value", "Statoil"),
        ("How long was Anna at Statoil?", "duration", "6 years"),
        ("Was Anna ever in Rome?", "exists", "yes"),
        ("How much was Anna's cheapest lamp?", "min", "50 euros"),
        ("When was Anna heaviest?", "max", "2020-01-05"),
        ("What did Anna spend in 2020?", "sum", "300 euros"),
        ("What is the average price of a lamp?", "mean", "50 euros"),
        ("How many books did Bob get through in 2023?", "count", "3"),
        ("How old is Zoe?", "age", "33 to 34 years"),
        ("On whose payroll is Anna?", "value", "Statoil"),
        ("Lamps: how many did Anna buy?", "count", "2"),
        ("How much money did Anna's shopping cost in April 2020?", "sum", "300 euros"),
        (
            "Which order did Anna visit Rome and fly to Paris in?",
            "order",
            "Anna visit Rome, then fly to Paris",
        ),
        ("Did Anna go to Rome first and to Paris afterwards?", "before", "yes"),
        ("Who did Zoe spend time with in 2023?", "list", "Bob, Ole"),
        ("Could it be that Anna visited Rome?", "exists", "yes"),
        ("Over 2023, how many trips did Anna make?", "count", "2 to 3"),
        ("Which place did Anna visit before all the others?", "first", "Berlin"),
        ("When Anna was at her heaviest in 2020, what did she weigh?", "max", "70 kg"),
        (
            "How many days were there between Anna's trip to Rome and her flight to Paris?",
            "difference",
            "87 to 117 days",
        ),
    ],
)
def test_each_operation(lens: Lens, question: str, operation: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NoPlan, match="no fact is of the kind asked for"):
            answer(lens, question)
        return
    found = answer(lens, question)
    assert (found.operation, found.answer) == (operation, expected)


def test_each_counted_fact_is_listed_with_its_source(lens: Lens) -> None:
    found = answer(lens, "How many trips did Anna make in 2023?")
    assert [item.name for item in found.items] == ["Rome", "Paris", "Lima"]
    assert all(item.fact.provenance[0].source for item in found.items)
    assert "partial or unknown" in found.note
    assert "at least" in found.note


def test_amounts_list_the_event_and_what_tells_its_price(lens: Lens) -> None:
    found = answer(lens, "How much did Anna spend in total in 2021?")
    assert (found.answer, found.note) == ("50 euros", "1 more without a known amount")
    told = [fact.text for item in found.items for fact in item.facts]
    assert told == ["2021-02-01: Anna bought lamp", "2021-02-01: Anna bought for €50"]
    assert "<urn:turngraph:paid>" in found.queries[0]


def test_the_time_of_the_question_counts(lens: Lens) -> None:
    assert answer(lens, "Where does Anna live?", "2021").answer == "Oslo"
    assert answer(lens, "How old is Bob?", "2000-05-03").answer == "11 years"
    assert answer(lens, "How many times did Anna visit Rome?", "2024").answer == "1"
    with pytest.raises(NoPlan, match="no fact"):
        answer(lens, "How many times did Anna visit Rome?", "2022")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Please summarise everything.", "of no known form"),
        ("Does Anna like coffee?", "is unknown: 'coffee'"),
        ("Does Anna like tea?", "is unknown: 'tea'|no fact is of the kind asked for"),
        ("What is the capital of France?", "is unknown: 'capital'|no word of the question"),
        ("What does he own?", "names no object of the graph"),
        ("How old is Anna?", "no fact is of the kind asked for"),
        ("Who did Anna buy the bicycle from?", "another role"),
        ("Where did Anna buy the bicycle?", "another role"),
        ("How many countries did Anna visit?", "of a class that the facts do not name"),
        ("How often did Anna visit Rome in 2021 and 2023?", "names several times"),
        ("Which restaurant did Anna visit last?", "of a class that the facts do not name"),
        ("How many kilometres did Anna run?", "is unknown: 'kilometres'"),
        ("How much did Bob pay?", "the amounts have several units"),
        ("How much did Anna spend in 2015?", "no fact matches at that time"),
        ("How much did Anna pay for a lamp in 2019?", "no fact matches at that time"),
        ("What was the cheapest trip of Anna?", "is unknown: 'cheap'"),
        ("What was the lowest price Anna paid before 15 April 2020?", "too coarse"),
        ("How often a year did Bob meet Zoe?", "no fact is of the kind asked for"),
        ("Where do I live?", "the graph has no single speaker"),
        ("Which came first, Anna's trip to Berlin or Lima?", "no date is known"),
        ("How long was it between Anna's trip to Lima and her flight to Paris?", "no date"),
        ("How long did Anna visit Rome?", "no duration"),
        ("How long has Anna owned a Volvo?", "the begin of a fact is not known"),
        ("How much did Anna spend a month?", "does not fit its form"),
        ("Where did Anna live before?", "does not fit its form"),
        ("Anna visited Rome last.", "of no known form"),
        ("Why did Anna last visit Rome?", "not computed: 'Why'"),
        ("In which month did Anna buy most?", "time with the most events"),
        ("Where did Anna pay 20 euros?", "does not ask for an amount"),
        ("What does Bob do for a living?", "no fact is of the kind asked for"),
        ("Was the Rome trip before the Paris flight?", "the graph has no single speaker"),
    ],
)
def test_what_is_not_computed_says_why(lens: Lens, question: str, reason: str) -> None:
    with pytest.raises(NoPlan, match=reason):
        answer(lens, question)


def test_dates_that_overlap_do_not_tell_an_order(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        wed = says("Anna", "married", "Carl", since="2020")
        remember(graph, [wed, says("Anna", "visited", "Rome", since="2020-05")])
        lens = Lens(graph.store, load_ontology())
        with pytest.raises(NoPlan, match="too coarse"):
            answer(lens, "Did Anna marry Carl before she visited Rome?")


def test_two_people_of_one_name_are_told_apart_by_id(lens: Lens, tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        remember(graph, [says("Anna", "lives in", "Oslo"), says("Anna", "works at", "Acme")])
        [works] = [f.key for f in graph.history("Anna") if "Acme" in f.text]
        other = graph.split("Anna", "Anna", facts=[works])
        mine = Lens(graph.store, load_ontology())
        with pytest.raises(NoPlan, match=rf"2 objects have one name: #\d+ Anna.*; #{other} Anna"):
            answer(mine, "Where does Anna work?")
        assert answer(mine, f"Where does #{other} work?").answer == "Acme"


def test_corrections_and_merges_change_the_answer(tmp_path: Path) -> None:
    question = "How many times did Anna fly to Rome?"
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        flew = says("Anna", "flew to", "Rome", since="2023-05")
        remember(graph, [flew], [says("Annie", "flew to", "Rome", since="2023-07")])
        lens = Lens(graph.store, load_ontology())
        assert answer(lens, question).answer == "1"
        graph.merge("Anna", "Annie")
        assert answer(lens, question).answer == "2"
        graph.undo()
        old = {"subject": "Anna", "relation": "flew to", "object": "Rome"}
        remember(graph, [says("Anna", "flew to", "Paris", since="2023-05", replaces=[old])])
        with pytest.raises(NoPlan, match="no fact is of the kind asked for"):
            answer(lens, question)


def test_i_am_the_one_speaker(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("I moved to Bergen in June 2022.", time="2024-01-01", speaker="Anna")
        [plan] = make_plans("Where do I live?", graph.store, load_ontology())
        assert plan.selections[0].subject == graph.store.objects("Anna")[0]
        lens = Lens(graph.store, load_ontology())
        assert answer(lens, "How long have I lived in Bergen?").answer == "24 months"


@pytest.mark.parametrize(
    ("first", "second", "unit", "units"),
    [
        ("2020-01-31", "2020-02-29", "month", 0),
        ("2020-02-28", "2020-03-28", "month", 1),
        ("2019-05-04", "2020-05-03", "year", 0),
        ("2019-05-04", "2020-05-04", "year", 1),
        ("2020-01-01", "2020-01-15", "week", 2),
        ("2020-01-02", "2020-01-01", "day", 0),
    ],
)
def test_whole_units(first: str, second: str, unit: str, units: int) -> None:
    assert units_between(start(first), start(second), unit) == units


@pytest.mark.parametrize(
    ("question", "plain"),
    [
        ("Could you please tell me where I'd lived in 2019?", "where I had lived in 2019"),
        ("Do you know whether I've met Ole?", "did I have met Ole"),
        ("I've met Ole, haven't I?", "did I have met Ole"),
        ("In 2019, what's the first book I read?", "what is the first book I read in 2019"),
        ("On average, how much did I pay?", "how much did I pay on average"),
        ("After visiting Rome, did I move?", "did I move after visiting Rome"),
        ("Last year I read how many books?", "how many books I read in 2023"),
        ("Who did I work for two years ago?", "Who did I work for in 2022"),
        ("May I ask who I met in May 2020?", "May I ask who I met in May 2020"),
        ("Give me all the trips of 2020.", "list all the trips in 2020"),
        ("Count my trips to Rome.", "what is the number of my trips to Rome"),
        ("My trip to Rome, when was that?", "when was my trip to Rome"),
        ("Of all my books, which was the last one?", "which was the last book"),
        ("Books: how many did I read?", "how many Books did I read"),
        ("Rome or Oslo, where did I go first?", "where did I go first, Rome or Oslo"),
        ("Rome and Oslo, how many days apart?", "how many days between Rome and Oslo"),
        ("Bob is how old?", "how old Bob is"),
        ("Any trip to Rome?", "is there any trip to Rome"),
        ("Flights a month in 2019?", "how many Flights a month in 2019"),
        ("Rome before Oslo?", "was Rome before Oslo"),
        ("First trip to Rome?", "what is First trip to Rome"),
        ("I visited Rome?", "did I visited Rome"),
        ("I visited Rome.", "I visited Rome"),
        ("Who did I meet from March to May 2019?", "Who did I meet from March 2019 to May 2019"),
        ("My monthly average of books?", "what is My average of books a month"),
        ("How many books since the start of 2019?", "How many books since 2019"),
        ("Sort these by date for me: a move, a trip", "Sort these by date: a move, a trip"),
        (
            "List Rome and Oslo from the earliest to the latest visit",
            "List Rome and Oslo in order of my visits",
        ),
        ("The total time I have spent working?", "what is The total time I working"),
    ],
)
def test_one_form_of_many_wordings(question: str, plain: str) -> None:
    assert plain_question(question, "2024-06-01") == plain


def test_a_value_of_another_class_is_not_computed(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        work = [says("Anna", "works at", "Rex"), says("Bob", "works at", "Acme")]
        remember(graph, work, [says("Rex", "is", "dog"), says("Acme", "is", "company")])
        remember(graph, [says("Bob", "weighs", "two lions")])
        lens = Lens(graph.store, load_ontology())
        assert compute(lens, "Where does Bob work?").answer == "Acme"
        for question in ("Where does Anna work?", "How much does Bob weigh?"):
            with pytest.raises(NoPlan, match="is of a class that does not fit"):
                compute(lens, question)


def test_a_state_that_may_have_ended_is_not_computed(lens: Lens) -> None:
    def mark(facts: Sequence[Fact]) -> list[Fact]:
        return [replace(fact, may_have_ended=2) for fact in facts]

    assert compute(lens, "Where does Anna work?").answer == "Statoil"
    with pytest.raises(NoPlan, match="may have ended"):
        compute(lens, "Where does Anna work?", mark=mark)
    assert compute(lens, "Where did Anna live in 2020?", mark=mark).answer == "Oslo"
    assert compute(lens, "How often did Anna visit Rome?", mark=mark).answer == "1"


class Model:
    """Language model with one reply to every prompt."""

    def __init__(self, operation: str, *facts: tuple[str, str, str]) -> None:
        ends = ("term", "subject", "object")
        facts_of = [dict(zip(ends, fact, strict=True)) for fact in facts]
        self.value = {"operation": operation, "facts": facts_of, "unit": ""}
        self.prompts: list[Prompt] = []

    def __call__(self, prompts: Sequence[Prompt]) -> list[Any]:
        self.prompts += prompts
        return [self.value for _ in prompts]


ODD = "Tally Anna's outings to Rome somehow"


def test_a_language_model_plans_what_the_rules_cannot(lens: Lens) -> None:
    with pytest.raises(NoPlan):
        compute(lens, ODD, "2024-06")
    model = Model("count", ("trip", "Anna's", "Rome"))
    found = compute(lens, ODD, "2024-06", ModelPlans(model))
    assert (found.answer, found.operation) == ("1", "count")
    [prompt] = model.prompts
    schema = prompt.schema["properties"]["facts"]["items"]["properties"]
    assert schema["subject"]["enum"] == ["", "Anna's", "Rome"]
    assert {"trip", "fly", "live in"} < set(schema["term"]["enum"])
    compute(lens, "How often did Anna visit Rome?", "2024-06", ModelPlans(model))
    assert len(model.prompts) == 1  # the rules have a plan


@pytest.mark.parametrize(
    ("question", "model", "reason"),
    [
        (ODD, Model("none", ("trip", "", "")), "the language model finds no plan"),
        (ODD, Model("count", ("trip", "Anna's", "")), "leaves out a name"),
        (ODD, Model("before", ("trip", "Anna's", "Rome")), "wrong number of selections"),
        ("Tally up outings", Model("count", ("trip", "", "")), "selects by no name"),
        ("Tally up what Anna would like", Model("list", ("trip", "Anna", "")), "not computed"),
    ],
)
def test_a_plan_that_does_not_fit_the_question_is_none(
    lens: Lens, question: str, model: Model, reason: str
) -> None:
    with pytest.raises(NoPlan, match=reason):
        compute(lens, question, "2024-06", ModelPlans(model))


def test_the_command_asks_a_server_for_a_plan(
    lens: Lens, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["ask", "--db", str(lens.store.path), "--no_embed", "--compute", ODD]
    plan = Model("count", ("trip", "Anna's", "Rome")).value
    with chat_server(lambda *_: Answer(plan)) as server:
        at = ["--compute_by", "endpoint", "--model", "any", "--base_url", server.url]
        main([*ask, *at])
    assert capsys.readouterr().out.startswith("computed: 1 (count)")
    assert "enum" in json.dumps(server.requests[0]["response_format"])
    with pytest.raises(ValueError, match="--compute_by endpoint needs --base_url"):
        main([*ask, "--compute_by", "endpoint", "--model", "any"])
    with pytest.raises(ValueError, match="--model needs --plan lm or endpoint, or --compute_by"):
        main([*ask, "--model", "any"])


def test_the_command_computes_or_marks_the_facts(
    lens: Lens, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["ask", "--db", str(lens.store.path), "--no_embed", "--compute", "--as_of", "2024-06"]
    main([*ask, "--show_sparql", "How often did Anna visit Rome?"])
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "computed: 1 (count)"
    assert rest[0].startswith("SELECT DISTINCT ?f")
    assert "2023-02-03: Anna visited Rome" in rest[-1]
    main([*ask, "Does Anna like coffee?"])
    assert capsys.readouterr().out.startswith("not computed: a word of the question")
    main([*ask, "--json", "Does Anna like coffee?"])
    found = json.loads(capsys.readouterr().out)
    assert found["computed"] is None
    assert found["mode"] == "both"
    main([*(word for word in ask if word != "--compute"), "--json", "Does Anna like coffee?"])
    assert json.loads(capsys.readouterr().out)["facts"] == found["facts"]
    main([*ask, "--mixture", "flat", "--json", "Does Anna like coffee?"])
    assert json.loads(capsys.readouterr().out)["mode"] == "facts"
    main([*ask, "--json", "Where does Anna live?"])
    found = json.loads(capsys.readouterr().out)
    assert found["computed"] == {"answer": "Bergen", "operation": "value", "note": ""}
    assert found["facts"][0]["provenance"]
