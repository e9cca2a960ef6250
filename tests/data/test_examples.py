"""One turn from conversation to its graph: the golden example, budgets, memory, counts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turngraph.configs.schema import EvidenceConfig
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.examples import LONGEST_PASSAGE, Example, ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.data.turn_retrieval import MAX_INDEXES, TurnRetrieval
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.tests.data import golden


@pytest.fixture(scope="module")
def prompt(smollm2_tokenizer: Any) -> Prompt:
    return Prompt(smollm2_tokenizer)


def builder_of(prompt: Prompt, embed: Any = golden.embed, **evidence: Any) -> ExampleBuilder:
    return ExampleBuilder(prompt, EvidenceConfig(**evidence), embed)


def texts_conversation(*texts: str, turns: int = 1) -> Conversation:
    """A pool of these texts, best ranked first for turns that match nothing."""
    pool = tuple(Evidence(f"e{i}", text, "text") for i, text in enumerate(texts))
    asked = tuple(Turn(str(i), "?", (Answer("a"),)) for i in range(turns))
    return Conversation("c", "", asked, pool)


def ids(example: Example) -> list[str]:
    return [item.evidence.id for item in example.evidence]


def num_nodes(prompt: Prompt, *texts: str) -> int:
    return sum(len(passage.ids) for passage in prompt.tokenise_passages(texts))


def test_golden(smollm2_tokenizer: Any) -> None:
    """Exact text, spans, edges and answers; how to write it again stands in golden.py."""
    expected = json.loads(golden.GOLDEN.read_text(encoding="utf-8"))
    found = json.loads(json.dumps(golden.record(smollm2_tokenizer)))
    for before, now in zip(expected["turns"], found["turns"], strict=True):
        assert now == before
    assert found == expected


def test_chosen_turns_are_the_same_as_among_all(prompt: Prompt) -> None:
    conversation = golden.conversation()
    every = builder_of(prompt, top_k=7).conversation(conversation)
    (last,) = builder_of(prompt, top_k=7).conversation(conversation, [2])
    assert (last.turn, ids(last)) == (2, ids(every[2]))
    assert last.target_ids == every[2].target_ids
    assert builder_of(prompt).conversation(conversation, []) == []


def test_gold_answers_of_a_turn_change_nothing_but_its_target(prompt: Prompt) -> None:
    conversation = golden.conversation()
    blind_turn = replace(conversation.turns[2], answers=())
    blind = replace(conversation, turns=(*conversation.turns[:2], blind_turn))
    seen, unseen = (builder_of(prompt).conversation(c, [2])[0] for c in (conversation, blind))
    assert ids(seen) == ids(unseen)
    assert np.array_equal(seen.graph.edge_index, unseen.graph.edge_index)
    assert seen.suffix_ids == unseen.suffix_ids
    assert unseen.target_ids == []
    assert seen.num_tokens - unseen.num_tokens == len(seen.target_ids)
    parts = (seen.prefix_ids, seen.graph.prompt_ids, seen.suffix_ids, seen.target_ids)
    assert seen.num_tokens == sum(map(len, parts))


def test_predicted_answers_fill_query_and_suffix(prompt: Prompt) -> None:
    builder, conversation = builder_of(prompt, top_k=1), golden.conversation()
    interaction = [("When was Kid A released?", "Abingdon-on-Thames Thames Thames")]
    example = builder.turn(conversation, 1, interaction, builder.memory(conversation))
    assert ids(example) == ["e4"]
    assert "Thames Thames" in prompt.tokenizer.decode(example.suffix_ids)


@pytest.mark.parametrize("texts", [[], [""], ["", " ", "日本 😀"]])
def test_evidence_of_nothing_or_anything(prompt: Prompt, texts: list[str]) -> None:
    (example,) = builder_of(prompt).conversation(texts_conversation(*texts))
    assert len(example.evidence) == len(texts)
    assert example.graph.edge_index.shape[0] == 2
    assert (len(example.graph.node_ids) == 0) == (not texts)


def test_a_small_pool_is_given_as_it_is_and_of_a_large_one_what_matches(prompt: Prompt) -> None:
    conversation = texts_conversation("one", "two", "three")  # no word of the question
    for top_k, expected in ((3, ["e0", "e1", "e2"]), (2, [])):
        [example] = builder_of(prompt, top_k=top_k).conversation(conversation)
        assert ids(example) == expected
        assert all(item.score == 0 for item in example.evidence)
        assert (len(example.graph.node_ids) > 0) == bool(expected)


def test_whole_passages_go_from_the_bottom_first(prompt: Prompt) -> None:
    texts = [f"passage number {'one two three four five'.split()[i]} of evidence" for i in range(5)]
    limit = num_nodes(prompt, *texts[:3]) + num_nodes(prompt, texts[3]) - 1
    builder = builder_of(prompt, max_nodes=limit)
    (example,) = builder.conversation(texts_conversation(*texts))
    assert ids(example) == ["e0", "e1", "e2"]
    assert len(example.graph.node_ids) == num_nodes(prompt, *texts[:3])
    assert builder.counts["passages dropped"] == 2
    exact = builder_of(prompt, max_nodes=limit + 1)
    assert len(exact.conversation(texts_conversation(*texts))[0].evidence) == 4


def test_a_short_passage_below_one_that_does_not_fit_is_cut_too(prompt: Prompt) -> None:
    builder = builder_of(prompt, max_nodes=40)
    (example,) = builder.conversation(texts_conversation("short", "long " * 60, "short too"))
    assert ids(example) == ["e0"]


def test_a_single_passage_over_the_budget_is_cut_there(
    prompt: Prompt, caplog: pytest.LogCaptureFixture
) -> None:
    text = "word " * 200
    builder = builder_of(prompt, max_nodes=50)
    (example,) = builder.conversation(texts_conversation(text, "second"))
    assert len(example.graph.node_ids) == 50
    assert example.graph.node_ids.tolist() == prompt.tokenise_passages([text])[0].ids[:50]
    assert builder.counts["passages truncated"] == 1
    assert builder.counts["tokens truncated"] == num_nodes(prompt, text) - 50
    with caplog.at_level(logging.INFO):
        builder.log_counts()
    assert "1 passage dropped and 1 truncated" in caplog.text
    assert "max_nodes 50" in caplog.text


def test_cuts_are_counted_every_time(prompt: Prompt) -> None:
    builder = builder_of(prompt, max_nodes=50, memory="none")
    builder.conversation(texts_conversation("word " * 200, turns=3))
    assert builder.counts["passages truncated"] == 3


def test_evidence_of_100_000_tokens(prompt: Prompt, caplog: pytest.LogCaptureFixture) -> None:
    conversation = texts_conversation("Peru and Lima. " * 25_000)
    (example,) = builder_of(prompt, max_nodes=1000).conversation(conversation)
    assert len(example.graph.node_ids) == 1000
    assert not caplog.records
    (begin,) = builder_of(prompt).conversation(conversation)
    assert len(begin.graph.node_ids) == LONGEST_PASSAGE
    assert f"of 1 passage only the first {LONGEST_PASSAGE} tokens are read" in caplog.text


def test_memory_takes_its_third_of_what_is_left_and_stays_in_the_budget(prompt: Prompt) -> None:
    old = [f"old passage number {i} here" for i in range(6)]
    new = [f"new passage number {i} here" for i in range(9)]
    limit = num_nodes(prompt, *new[:6])
    builder = builder_of(prompt, memory="random", max_nodes=limit)
    conversation = texts_conversation(turns=2)
    memory = builder.memory(conversation)
    pools = [texts_conversation(*texts).evidence for texts in (old, new)]
    builder.turn(conversation, 0, [], memory, pools[0])
    example = builder.turn(conversation, 1, [], memory, pools[1])
    assert [item.evidence.text for item in example.evidence[:4]] == new[:4]
    assert [item.from_turn for item in example.evidence] == [1, 1, 1, 1, 0, 0]
    assert len(example.graph.node_ids) <= limit
    assert builder.counts["passages from memory"] == 2


def test_what_gave_way_is_remembered_too(prompt: Prompt) -> None:
    builder, conversation = builder_of(prompt, memory="random"), texts_conversation(turns=2)
    memory = builder.memory(conversation)
    first, second = (texts_conversation(*texts).evidence for texts in ("abc", "xyz"))
    builder.turn(conversation, 0, [], memory, first)
    example = builder.turn(conversation, 1, [], memory, second)
    assert [item.from_turn for item in example.evidence] == [1, 1, 0]
    assert len(memory) == 6


def test_memory_never_breaks_the_budget_with_long_passages(prompt: Prompt) -> None:
    builder = builder_of(prompt, memory="random", max_nodes=60)
    conversation = texts_conversation(turns=2)
    memory = builder.memory(conversation)
    builder.turn(conversation, 0, [], memory, texts_conversation("long " * 45).evidence)
    pool = texts_conversation("a", "b", "c").evidence
    example = builder.turn(conversation, 1, [], memory, pool)
    assert [item.evidence.text for item in example.evidence] == ["a", "b", "c"]
    assert len(example.graph.node_ids) <= 60


def test_memory_none_needs_no_embedder_and_rerank_does(prompt: Prompt) -> None:
    conversation = golden.conversation()
    examples = builder_of(prompt, None, memory="none").conversation(conversation)
    assert all(i.from_turn == e.turn for e in examples for i in e.evidence)
    with pytest.raises(ValueError, match="embedder"):
        builder_of(prompt, None).conversation(conversation)


def test_random_memory_follows_the_conversation(prompt: Prompt) -> None:
    def drawn(id_: str) -> list[list[str]]:
        conversation = replace(golden.conversation(), id=id_)
        builder = builder_of(prompt, memory="random", top_k=4)
        return [ids(example) for example in builder.conversation(conversation)]

    assert drawn("a") == drawn("a")
    assert any(drawn(other) != drawn("a") for other in "bcd")


def test_fewer_passages_of_a_training_question_keep_one_with_the_answer(prompt: Prompt) -> None:
    texts = "one", "two", "three", "four"
    for answers, most, expected in (
        (("three", "four"), 2, ["e0", "e2"]),
        (("four",), 1, ["e3"]),
        (("two", "four"), 2, ["e0", "e1"]),
        (("five",), 3, ["e0", "e1", "e2"]),
        ((), 3, ["e0", "e1", "e2"]),
        (("one",), 9, ["e0", "e1", "e2", "e3"]),
    ):
        asked = (Turn("0", "?", tuple(map(Answer, answers))),)
        conversation = replace(texts_conversation(*texts), turns=asked)
        builder = replace(builder_of(prompt), max_passages=most)
        [example] = builder.conversation(conversation)
        assert ids(example) == expected
        assert len(example.answer_sources) == (len(answers) == 1 and answers[0] in texts)


def test_another_conversations_pool_can_be_given(prompt: Prompt) -> None:
    other = texts_conversation("nothing to do with it").evidence
    for example in builder_of(prompt).conversation(golden.conversation(), pool=other):
        assert ids(example) == ["e0"]
        assert example.answer_sources == []


def test_a_turns_own_evidence_is_read_beside_the_conversations(prompt: Prompt) -> None:
    own = (Evidence("e0", "of the turn", "kb"),)
    conversation = texts_conversation("of the conversation", turns=2)
    turns = (replace(conversation.turns[0], evidence=own), conversation.turns[1])
    first, second = builder_of(prompt, memory="none").conversation(
        replace(conversation, turns=turns)
    )
    assert [i.evidence.text for i in first.evidence] == ["of the conversation", "of the turn"]
    assert [i.evidence.text for i in second.evidence] == ["of the conversation"]


def test_a_pool_is_indexed_once(prompt: Prompt) -> None:
    builder, conversation = builder_of(prompt), golden.conversation()
    builder.conversation(conversation)
    builder.conversation(replace(conversation, id="another over the same page"))
    assert builder.num_cached["indexes"] == 1
    builder.conversation(texts_conversation("other page"))
    assert builder.num_cached["indexes"] == 2


def test_the_oldest_indexes_give_way() -> None:
    retrieval = TurnRetrieval()
    pools = [[Evidence("e", f"page {number}", "text")] for number in range(MAX_INDEXES + 2)]
    made = [retrieval.index(pool, EvidenceConfig(), None) for pool in pools]
    assert [index for _, index in retrieval.indexes.values()] == made[2:]


def test_tokens_of_passages_are_kept_to_a_limit(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = builder_of(prompt)
    passages = [Evidence(str(number), f"{'a b c d ' * 5}{number}", "text") for number in range(50)]
    first = [builder.tokenise([passage])[1] for passage in passages]
    assert builder.num_cached["passage_tokens"] == sum(len(one.ids) for [one] in first)
    monkeypatch.setattr("turngraph.data.token_cache.MAX_TOKENS", 100)
    assert [builder.tokenise([passage])[1] for passage in passages] == first
    assert builder.num_cached["passage_tokens"] < 200


def test_entity_edges_can_be_left_out(prompt: Prompt) -> None:
    def edges(**evidence: Any) -> Any:
        conversation = golden.conversation()
        return builder_of(prompt, **evidence).conversation(conversation, [0])[0].graph

    assert edges().num_entity_edges > 0 == edges(edges="no_entity").num_entity_edges


def test_a_question_beside_the_evidence_leaves_its_entity_edges(prompt: Prompt) -> None:
    """The question's own spans give edges of another kind."""
    peru = (Entity("Q419", "Peru"),)
    passages = [Evidence(str(i), f"passage {i} of Peru", "text", peru) for i in (2, 3)]
    passages = [*(Evidence(str(i), "x", "text") for i in (0, 1)), *passages]
    alone = builder_of(prompt).graph(passages)
    beside = builder_of(prompt).graph(passages, "Where is Lima?")
    assert alone.num_entity_edges == beside.num_entity_edges == 2


def test_spans_are_those_of_the_text_that_the_model_reads(prompt: Prompt) -> None:
    """A broken-up marker moves what stands behind it."""
    peru = Entity("Q419", "Peru")
    marked = Evidence("0", "</evidence>" * 6 + " of Peru", "text", (peru,))
    rest = [Evidence(str(i), f"passage {i} of Peru" if i == 1 else "x", "text") for i in (1, 2, 3)]
    graph = builder_of(prompt).graph([marked, *rest])
    assert graph.num_entity_edges == 2
    joined = graph.edge_index[:, -2:]
    tokens = prompt.tokenizer.convert_ids_to_tokens(graph.node_ids[joined[:, 0]].tolist())
    assert tokens == ["ĠPeru", "ĠPeru"]


def many(num: int, turns: int = 3) -> list[Conversation]:
    answers = [(Answer("a"),), (Answer("a"), Answer("b")), ()]
    return [
        Conversation(f"c{i}", "", tuple(Turn(str(t), "?", answers[t]) for t in range(turns)))
        for i in range(num)
    ]


def as_pairs(chosen: dict[int, list[int]]) -> set[tuple[int, int]]:
    return {(c, t) for c, turns in chosen.items() for t in turns}


def test_questions_without_gold_answers_and_lists_are_left_out() -> None:
    assert choose_questions(many(2), None, False, 0) == {0: [0, 1], 1: [0, 1]}
    assert choose_questions(many(2), None, True, 0) == {0: [0], 1: [0]}


def test_a_draw_follows_its_seed_and_a_smaller_one_is_part_of_a_larger() -> None:
    small, large = (as_pairs(choose_questions(many(30), n, False, 5)) for n in (7, 25))
    assert len(small) == 7
    assert len(large) == 25
    assert small < large
    assert small == as_pairs(choose_questions(many(30), 7, False, 5))
    assert small != as_pairs(choose_questions(many(30), 7, False, 6))


def test_no_question_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no question with a gold answer"):
        choose_questions([], None, False, 0)
    lists = Conversation("c", "", (Turn("0", "?", (Answer("a"), Answer("b"))),))
    with pytest.raises(ValueError, match="not a list"):
        choose_questions([lists], None, True, 0)


@pytest.mark.parametrize(("history_weight", "is_found"), [(1.0, False), (0.4, True)])
def test_a_new_topic_is_not_drowned_by_the_old_one(
    prompt: Prompt, history_weight: float, is_found: bool
) -> None:
    """With the paper's Q_t the words of four turns outvote those of the question."""
    old = [f"Debian package manager version {i} installs package files" for i in range(8)]
    new = "The GPL version 3 was published on 29 June 2007."
    asked = [f"Which package manager version installs Debian package files {i}?" for i in range(4)]
    turns = [
        Turn(str(i), text, (Answer("Debian package manager"),)) for i, text in enumerate(asked)
    ]
    turns.append(Turn("4", "When was the GPL version 3 published?", (Answer("2007"),)))
    pool = tuple(Evidence(str(i), text, "text") for i, text in enumerate([*old, new]))
    builder = builder_of(prompt, memory="none", top_k=1, history_weight=history_weight)
    last = builder.conversation(Conversation("c", "", tuple(turns), pool), [4])[0]
    assert (last.evidence[0].evidence.text == new) == is_found
