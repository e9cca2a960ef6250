"""``turngraph memory ask --plan rules``, ``chat --plan rules`` and plans inside conversations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from turngraph import infer
from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.memory_graph.conversation import ConversationGraph
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.types import Evidence, Retrieved
from turngraph.inference import memory_commands
from turngraph.inference.memory_options import AskOptions
from turngraph.inference.options import MemoryOptions
from turngraph.inference.plan_reader import PlanReader
from turngraph.inference.session import Session
from turngraph.memory import main
from turngraph.tests.chatting import CONVERSATION, Loaded, Screen
from turngraph.tests.tiny import save_tiny

QUESTION = "Who leads the country where Anna was born?"
TEXTS = ("Anna was born in Norway.", "Jonas Store leads Norway.", "Pierre Dubois leads France.")


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path, word_vectors) as graph:
        for text in TEXTS:
            graph.remember(text)
    return str(path)


def ask(db: str, *words: str) -> None:
    main(["ask", "--db", db, "--no_embed", *words])


def test_steps_are_printed_as_they_finish_and_then_the_facts(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(db, "--plan", "rules", QUESTION)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["1", "country where Anna was born", "Anna"]
    assert "→" not in lines[0][3]
    assert lines[1][:3] == ["2", "Who leads [1]", ""]
    assert "→" not in lines[1][3]
    assert {row[2] for row in lines[2:4]} == {
        "Anna was born in Norway.",
        "Jonas Store leads Norway.",
    }


def test_json_is_the_whole_plan(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask(
        db,
        "--plan",
        "rules",
        "--json",
        "--over",
        "episodes",
        "--steps",
        "1",
        "--clues",
        "1",
        QUESTION,
    )
    found = json.loads(capsys.readouterr().out)
    plan = found["plan"]
    [sub] = plan["subs"]
    assert (found["mode"], plan["stopped"], sub["stopped"], plan["calls"]) == (
        "plan", "limit", "limit", 0,
    )  # fmt: skip
    [step] = sub["steps"]
    assert (step["answers"][0], step["guessed"], plan["answer"]) == ("Norway", True, None)
    assert step["clues"] == [
        {"query": "country where Anna was born", "start": [{"name": "Anna", "node": 2}]}
    ]
    assert {fact["type"] for fact in found["facts"]} == {"episodic"}
    assert step["facts"][0] in [fact["key"] for fact in found["facts"]]


def test_nothing_recalled_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MemoryGraph.open(tmp_path / "empty.db").close()
    ask(str(tmp_path / "empty.db"), "--plan", "rules", QUESTION)
    assert capsys.readouterr().out.splitlines()[-1] == "no answer"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--plan", "rules", " "], "the question is blank"),
        (["--themes", ""], "the question is blank"),
        (["--steps", "2", "q"], "--steps and --clues need --plan"),
        (["--over", "facts", "--themes", "q"], "--over cannot be given with --themes or"),
        (["--over", "both", "--mixture", "flat", "q"], "--over both cannot be given with --mix"),
        (["--compute", "--themes", "q"], "--plan, --themes and --compute: give one"),
        (["--over", "episodes", "--mixture", "flat", "q"], "--over episodes ranks by ppr"),
        (
            ["--over", "episodes", "--min_similarity", "0.1", "q"],
            "--over episodes does not rank by cosines",
        ),
    ],
)
def test_a_wrong_call_is_one_line(db: str, words: list[str], error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        ask(db, *words)


def test_episodes_are_a_mode_of_their_own(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask(db, "--over", "episodes", "--num_facts", "2", QUESTION)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["episode", "episode"]
    assert {row[2] for row in rows} == set(TEXTS[:2])
    ask(db, "--over", "episodes", "--json", QUESTION)
    found = json.loads(capsys.readouterr().out)
    assert (found["mode"], found["plan"]) == ("episodes", None)


@pytest.mark.parametrize(
    ("words", "mode", "most"),
    [
        ([], "both", 50),
        (["--over", "facts"], "facts", 50),
        (["--forbidden", "E"], "facts", 50),
        (["--mixture", "flat"], "facts", 50),
        (["--set", "BeamSearch.max_depth=2"], "facts", 50),
        (["--over", "episodes"], "episodes", 7),
        (["--themes"], "themes", 50),
        (["--plan", "rules"], "plan", 50),
        (["--plan", "rules", "--over", "episodes"], "plan", 50),
    ],
)
def test_the_mode_follows_from_the_options(
    words: list[str], mode: str, most: int, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AskOptions] = []
    monkeypatch.setattr(memory_commands, "ask", lambda *given: asked.append(given[2]))
    ask(db, *words, "--num_facts", "7", QUESTION)
    [options] = asked
    recall = options.recall()
    assert (options.mode, recall.num_facts) == (mode, 7)
    assert recall.traversal.ppr.top_k == most
    assert recall.forbidden == (("E",) if "--forbidden" in words else ())
    over = "episodes" if "episodes" in words else "facts"
    planning = options.planning()
    assert (planning.over, planning.recall) == (over, recall)
    assert (planning.max_steps, planning.max_clues) == (4, 4)


@pytest.mark.parametrize("words", [["--plan", "magic"], ["--plan", "rules", "--steps", "0"]])
def test_a_wrong_option_is_refused(
    db: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        ask(db, *words, "q")
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"turngraph memory ask: error: argument {words[-2]}: ")
    assert said.count("\n") == 1


def test_a_conversation_asks_its_graph_by_plans() -> None:
    config = MemoryGraphConfig(vectors="words", plan="rules")
    graph = ConversationGraph(config, None)
    passages = [Evidence(f"e{i}", text, "text") for i, text in enumerate(TEXTS)]
    graph.note(0, [Retrieved(passage, 1.0, 0) for passage in passages])
    said = [("What is there to know?", "much")]
    found = graph.recall(QUESTION, said, 1)
    assert graph.planned is not None
    assert graph.planned.subs[0].steps[1].texts[0] == "Who leads Norway"
    assert TEXTS[1] in [item.evidence.text for item in found[:3]]
    graph.restore(graph.state())
    assert graph.planned is None
    graph.close()


def test_the_chat_shows_the_plan_of_the_last_answer(graph_model: Loaded, tmp_path: Path) -> None:
    model, builder = graph_model
    builder = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    memory = MemoryOptions(tmp_path / "my.db", plan="rules")
    session = Session(model, builder, CONVERSATION.evidence, memory, 8)
    screen = Screen(session)
    assert "no plan" in screen("/plan")
    screen("Anna was born in Norway. Is it cold?", "Jonas Store leads Norway. Is it late?")
    shown = screen(QUESTION, "/plan")
    assert re.search("^1 +country where Anna was born", shown, re.MULTILINE)
    assert re.search(r"^2 +Who leads \[1\]", shown, re.MULTILINE)
    graph = session.memory.graph
    graph.planned = replace(graph.planned, subs=graph.planned.subs * 2)
    numbers = re.findall(r"^(\d\.\d) ", screen("/plan"), re.MULTILINE)
    assert numbers == ["1.1", "1.2", "2.1", "2.2"]
    session.close()


def test_the_chat_computes_and_shows_the_counted_facts(graph_model: Loaded, tmp_path: Path) -> None:
    model, builder = graph_model
    builder = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    memory = MemoryOptions(tmp_path / "my.db", compute="rules")
    session = Session(model, builder, CONVERSATION.evidence, memory, 8)
    screen = Screen(session)
    screen("I visited Rome on 3 May 2021. Is it warm?", "I visited Rome on 4 May 2022. Is it far?")
    shown = screen("How often did I visit Rome?", "/why")
    assert "computed: 2 (count)" in shown
    assert re.search(r"plan: .*count", shown)
    assert "2021-05-03: user visited Rome" in shown
    assert "SELECT DISTINCT" in shown
    assert "note: " not in shown
    rows = re.findall(r"user visited Rome +(20\S*)$", shown, re.MULTILINE)
    assert rows == [item.fact.valid_from for item in session.memory.graph.computed.items]
    graph = session.memory.graph
    first, *others = graph.computed.items
    undated = replace(first, fact=replace(first.fact, valid_from=None))
    graph.computed = replace(graph.computed, items=(undated, *others), note="not all")
    assert "note: not all" in screen("/why")
    [first, *_] = session.turns[-1].example.evidence
    assert first.evidence.text.startswith("Computed: How often did I visit Rome: 2 (Rome 2021-05-0")
    session.undo()
    assert "computed: 2" not in screen("Who sang?", "/why")
    session.close()


def test_a_local_lm_plans_in_a_chat_and_its_model_reads(
    graph_model: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.inference.plan_models.MAX_NEW_TOKENS", 120)
    model, builder = graph_model
    builder = replace(builder, memory_graph=MemoryGraphConfig(vectors="words"))
    memory = MemoryOptions(
        tmp_path / "my.db", plan="lm", plan_model=save_tiny(tmp_path / "lm"), plan_reader=True
    )
    session = Session(model, builder, CONVERSATION.evidence, memory, 8)
    screen = Screen(session)
    shown = screen("Anna was born in Norway. Is it cold?", QUESTION)
    plan = session.persistent.planned
    assert plan is not None, shown
    assert 1 <= plan.calls <= 10
    assert isinstance(session.persistent.read, PlanReader)
    assert session.persistent.graph.replies
    session.close()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--plan", "rules"], "--plan needs --memory"),
        (["--compute", "rules"], "--compute needs --memory"),
        (["--plan_model", "x", "--plan", "rules", "--memory", "m.db"], "--plan_model needs --plan"),
        (["--plan_reader", "--memory", "m.db"], "--plan_reader needs --plan rules or lm"),
    ],
)
def test_options_of_plans_in_a_chat_go_together(
    graph_checkpoint: str, words: list[str], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        infer.main(["chat", "--checkpoint", graph_checkpoint, *words])
