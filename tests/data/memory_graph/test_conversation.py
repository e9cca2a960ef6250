"""The memory graph of a conversation: what a turn may see and recall, and that nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.schema import DataConfig, EvidenceConfig
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import write_conversations
from turngraph.data.memory_graph.conversation import ChatGraph, ConversationGraph
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.recollection import each_once
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.data.prompt import Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Retrieved, Turn

PEOPLE = ("Ada", "Bela", "Cem")
WORDS = MemoryGraphConfig(vectors="words")


def conversation(number: int = 0, num_turns: int = 3) -> Conversation:
    """Every turn has a pool of its own, so that only memory knows what an earlier one held."""
    name = PEOPLE[number]
    asked = (
        (f"Where does {name} live?", "Oslo", f"{name} has lived in Oslo since 2019."),
        (f"What does {name} play?", "the cello", f"{name} plays the cello in an orchestra."),
        (f"Which city does {name} live in?", "Oslo", "Rain fell on the harbour."),
        (f"And who taught {name}?", "Mira", f"{name} was a pupil of Mira."),
    )
    turns = tuple(
        Turn(str(i), question, (Answer(answer),), evidence=(_passage(name, i, text),))
        for i, (question, answer, text) in enumerate(asked[:num_turns])
    )
    return Conversation(f"c{number}", "", turns)


def _passage(name: str, turn: int, text: str) -> Evidence:
    entities = (Entity(f"Q-{name}", name),) if name in text else ()
    return Evidence(f"e{turn}", text, "text", entities)


@pytest.fixture(scope="module")
def prompt(smollm2_tokenizer: Any) -> Prompt:
    return Prompt(smollm2_tokenizer)


def builder_of(prompt: Prompt, **changes: Any) -> ExampleBuilder:
    config = EvidenceConfig(memory="none", top_k=4)
    return replace(ExampleBuilder(prompt, config, memory_graph=WORDS), **changes)


def given(example: Example) -> list[tuple[str, str]]:
    return [(item.evidence.source, item.evidence.text) for item in example.evidence]


def test_a_turn_recalls_what_an_earlier_one_retrieved_and_answered(prompt: Prompt) -> None:
    first, second, third = builder_of(prompt).conversation(conversation())
    assert given(first) == [("text", "Ada has lived in Oslo since 2019.")]
    assert ("memory", "Ada has lived in Oslo since 2019.") in given(second)
    assert given(third)[0] == ("text", "Rain fell on the harbour.")
    assert ("memory", "Ada has lived in Oslo since 2019.") in given(third)
    assert ("memory", "Where does Ada live? Oslo") in given(third)
    recalled = {item.evidence.text: item for item in third.evidence}
    assert recalled["Ada has lived in Oslo since 2019."].from_turn == 0
    assert {item.from_turn for item in third.evidence} == {0, 1, 2}
    assert third.graph.num_entity_edges > 0
    entities = [e for item in recalled.values() for e in item.evidence.entities]
    assert {entity.id for entity in entities if entity.label == "Ada"} == {"Q-Ada"}


def test_a_computed_statement_comes_first_with_its_answer_as_entity(prompt: Prompt) -> None:
    graph = replace(WORDS, compute="rules")
    computed = builder_of(prompt, memory_graph=graph).conversation(conversation())[2]
    first, *others = computed.evidence
    said = "Ada has lived in Oslo since 2019."
    assert first.evidence.text == "Computed: Which city does Ada live in: Oslo (Oslo 2019)"
    assert (first.evidence.source, first.from_turn) == ("memory", 2)
    assert [(e.id, e.label) for e in first.evidence.entities] == [("oslo", "Oslo")]
    assert any(item.evidence.text == "2019: Ada lives in Oslo" for item in others)
    without = builder_of(prompt).conversation(conversation())[2]
    assert first.evidence.text not in [text for _, text in given(without)]
    assert ("memory", said) in given(without)


def same(one: Example, other: Example) -> bool:
    return given(one) == given(other) and all(
        list(a) == list(b)
        for a, b in (
            (one.graph.node_ids, other.graph.node_ids),
            (one.graph.edge_index.ravel(), other.graph.edge_index.ravel()),
            (one.suffix_ids, other.suffix_ids),
        )
    )


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_no_answer_leaks_from_this_turn_or_a_later_one(turn: int, prompt: Prompt) -> None:
    known = conversation(num_turns=4)
    secret = (Answer("a secret of Ada in Oslo"),)
    told = tuple(
        replace(
            t, question=t.question if i == turn else f"Ada, Oslo? {i}", answers=secret,
            evidence=t.evidence if i == turn else (_passage("Ada", i, "A secret of Ada in Oslo."),),
        )
        if i >= turn else t
        for i, t in enumerate(known.turns)
    )  # fmt: skip
    expected = builder_of(prompt).conversation(known)[turn]
    found = builder_of(prompt).conversation(replace(known, turns=told))[turn]
    assert same(found, expected)
    assert "secret" not in str(given(found))


def test_no_answer_leaks_from_another_conversation(prompt: Prompt) -> None:
    """Another annotator's conversation over the same page asks the same and knows the answers."""
    other = replace(conversation(num_turns=4), id="another annotator's")
    expected = builder_of(prompt).conversation(conversation())
    builder = builder_of(prompt)
    builder.conversation(other)
    found = builder.conversation(conversation())
    assert all(map(same, found, expected))
    memories = [builder.memory(other), builder.memory(conversation())]
    interaction = [("Who is Ada's secret?", "Mira")]
    builder.turn(other, 1, interaction, memories[0])
    together = builder.turn(conversation(), 0, [], memories[1])
    assert same(together, expected[0])


def test_earlier_answers_are_those_of_the_interaction(prompt: Prompt) -> None:
    builder, asked = builder_of(prompt), conversation()
    memory = builder.memory(asked)
    interaction: list[tuple[str, str]] = []
    for turn in range(3):
        example = builder.turn(asked, turn, interaction, memory)
        interaction.append((asked.turns[turn].question, "Bergen"))
    assert ("memory", "Where does Ada live? Bergen") in given(example)
    assert ("memory", "Where does Ada live? Oslo") not in given(example)


def test_turns_that_are_left_out_are_remembered_all_the_same(prompt: Prompt) -> None:
    expected = builder_of(prompt).conversation(conversation())[2]
    [only] = builder_of(prompt).conversation(conversation(), [2])
    assert same(only, expected)


def test_recalled_facts_keep_to_their_share_and_the_budget(prompt: Prompt) -> None:
    pool = tuple(_passage("Ada", i, f"Ada met person number {i} in Oslo.") for i in range(12))
    asked = tuple(Turn(str(i), "Whom did Ada meet?", (Answer(str(i)),)) for i in range(4))
    long = Conversation("c", "", asked, pool)
    for top_k, most in ((2, 0), (4, 1), (8, 2)):  # a third
        config = EvidenceConfig(memory="none", top_k=top_k)
        last = builder_of(prompt, config=config).conversation(long)[3]
        recalled = sum(source == "memory" for source, _ in given(last))
        assert recalled == most
        assert len(last.evidence) <= top_k
        texts = [text for _, text in given(last)]
        assert len(set(texts)) == len(texts)
    config = EvidenceConfig(memory="random", top_k=8, max_nodes=40)
    last = builder_of(prompt, config=config).conversation(long)[3]
    assert 0 < len(last.graph.node_ids) <= 40


def test_examples_with_a_memory_graph_are_cached_whole(prompt: Prompt, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    write_conversations(path, [conversation(n) for n in range(3)])

    def load(builder: ExampleBuilder) -> list[Example]:
        return load_examples(builder, path, None, DataConfig(), 0)

    built, read = load(builder_of(prompt)), load(builder_of(prompt))
    assert any(source == "memory" for example in built for source, _ in given(example))
    for one, other in zip(built, read, strict=True):
        assert same(one, other)
        assert one.evidence == other.evidence
    without = load(builder_of(prompt, memory_graph=None))
    assert not any(source == "memory" for example in without for source, _ in given(example))


def retrieved(text: str) -> list[Retrieved]:
    return [Retrieved(Evidence("e", text, "text"), 1.0, 0)]


def test_what_is_retrieved_is_remembered_when_its_turn_is_finished() -> None:
    graph = ConversationGraph(WORDS, None)
    graph.note(0, retrieved("Ada lives in Oslo."))
    assert graph.recall("Where does Ada live?", [], 0) == []
    found = graph.recall("Where does Ada live?", [("Ada?", "")], 1)
    assert [item.evidence.text for item in found] == ["Ada lives in Oslo."]
    assert graph.num_turns == 1
    graph.close()


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "my.db"
    for question, answer in (
        ("Where does Ada live?", "Oslo"),
        ("When did she move there?", "2019"),
    ):
        chat = ChatGraph(path, WORDS, None)
        chat.remember([(question, answer)])
        chat.close()
    return path


def test_a_chat_keeps_what_is_said_with_time_speaker_and_source(memory: Path) -> None:
    """The model's answer is history: it is marked, states nothing, and is never evidence."""
    with MemoryGraph.open(memory, word_vectors) as graph:
        rows = graph.store.db.execute(
            "SELECT n.text, e.speaker, e.properties, substr(e.source, 1, 5), n.said IS NOT NULL "
            "FROM episodes e JOIN nodes n ON n.id = e.node ORDER BY n.id"
        ).fetchall()
        assert rows[:2] == [
            ("Where does Ada live?", "user", '{"kind": "question"}', "chat ", 1),
            ("Oslo", "assistant", '{"kind": "answer"}', "chat ", 1),
        ]
        assert len(rows) == 4
        assert not graph.stats().nodes["thesis"]
        for question in ("Where does Ada live?", "Oslo"):
            assert not graph.ask(question, settings=RecallSettings(Traversal("flat"))).facts
            assert not graph.ask_episodes(question).facts


def test_what_a_user_says_of_himself_answers_a_question_about_him(tmp_path: Path) -> None:
    chat = ChatGraph(tmp_path / "my.db", WORDS, None)
    interaction = [("My name is Piotr and I live in Gdynia.", "I live in Oslo."), ("Hm?", "Rome")]
    chat.note(1, retrieved("Rome is old."))
    found = chat.recall("Where do I live?", interaction, 2)
    assert not chat.state().evidence  # what was retrieved for finished turns is not kept
    chat.release()
    assert chat.recall("Where do I live?", interaction, 2) == found  # it is read again
    chat.close()
    texts = [item.evidence.text for item in found]
    assert any("I live in Gdynia" in text for text in texts)
    assert not any("Oslo" in text or "Rome" in text or "Hm" in text for text in texts)


def test_a_chat_recalls_as_ask_both_does_each_statement_once(tmp_path: Path) -> None:
    """Facts and whole texts; a text of which nothing was extracted, too, in a chat's first turn."""
    path = tmp_path / "my.db"
    with MemoryGraph.open(path, word_vectors, TurnExtractor()) as graph:
        graph.remember("The dog was ill in May. Soup, a lemon cake, no guests.", "2023-05-03")
        graph.remember("Anna lives in Oslo.", "2023-06-03")
        best = graph.ask_both("Where does Anna live?").facts
    chat = ChatGraph(path, WORDS, None)
    found = [item.evidence.text for item in chat.recall("Where does Anna live?", [], 0)]
    assert found == [fact.text for fact in each_once(best)]
    assert found[0] == "Anna lives in Oslo."
    asked = "What was there besides the lemon cake and soup?"
    assert "lemon cake" in chat.recall(asked, [], 0)[0].evidence.text
    turns = [(asked, "A lemon cake, I think."), ("Where does Anna live?", "In Oslo, says Anna.")]
    for turn in range(3):  # what was asked and answered is never recalled
        found = [item.evidence.text for item in chat.recall(asked, turns[:turn], turn)]
        assert not {asked, *(text for one in turns for text in one)} & {*found}
        assert "lemon cake" in found[0]
    chat.close()


def test_a_memory_that_is_only_read_stays_as_it_is(memory: Path) -> None:
    before = memory.read_bytes()
    chat = ChatGraph(memory, WORDS, None, read_only=True)
    state = chat.state()
    chat.recall("Where do I live?", [("I live in Gdynia.", "Yes")], 1)
    assert chat.num_turns == 1
    chat.restore(state)
    chat.close()
    assert memory.read_bytes() == before


def test_a_question_that_names_nothing_is_asked_with_the_turn_before() -> None:
    graph = ConversationGraph(WORDS, None)
    interaction = [("Where does Ada live?", "Oslo"), ("And Cem?", "Rome")]
    found = graph.recall("Since when?", interaction, 2)
    assert [item.evidence.text for item in found] == ["And Cem? Rome"]
    assert "Where does Ada live? Oslo" in str(graph.recall("Since when is Ada?", interaction, 2))
    graph.close()
