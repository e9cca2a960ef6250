"""The choice inside one checkpoint: its loss beside one written out, batches, learning, errors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turngraph.configs.parse import load_config
from turngraph.configs.schema import Config, DataConfig, EvidenceConfig
from turngraph.configs.scorer_schema import ScorerConfig
from turngraph.data.batches.collate import candidate_entities, collate
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.metrics import same_entity
from turngraph.data.token_cache import MAX_LABEL_TOKENS
from turngraph.data.types import Answer, Conversation, Turn
from turngraph.inference.answer_batches import answer_together
from turngraph.inference.explain import why
from turngraph.model.checkpoint import load_checkpoint, save_checkpoint
from turngraph.model.choice import check_branches
from turngraph.model.graph_lm import GraphLM
from turngraph.tests.tiny import (
    ARCHITECTURES,
    stir,
    tiny_base,
    tiny_builder,
    tiny_conversation,
    tiny_model,
)
from turngraph.training.optimizer import make_optimizer

EVIDENCE = {"chain": "both", "question_nodes": "query", "structure_edges": "table"}
SCORER = ScorerConfig(num_layers=2, width=16, heads=2, dropout=0.0, num_proposals=3)
SETTINGS: dict[str, Any] = {"answers": "choice", "evidence": "text", "scorer": SCORER}


def choice_builder(**evidence: object) -> ExampleBuilder:
    given = EVIDENCE | {"max_prompt_nodes": 60} | evidence
    return replace(tiny_builder(**given), mentions=True, labels=True)


def examples(count: int = 6, **evidence: object) -> list[Example]:
    builder = choice_builder(**evidence)
    found = [e for n in range(-(-count // 3)) for e in builder.conversation(tiny_conversation(n))]
    return found[:count]


def unnamed(question: str = "Does it rain?", *answers: Answer) -> Example:
    """A question over evidence that names no entity."""
    known = tiny_conversation(0)
    bare = Conversation("bare", "", (Turn("0", question, answers),), known.evidence[4:5])
    [example] = choice_builder().conversation(bare)
    return example


def logprob_of(model: GraphLM, example: Example, ids: list[int]) -> float:
    """Log-probability of a text after the prompt, by a row of its own."""
    batch = collate([replace(example, target_ids=ids)], "right", with_target=True)
    with torch.no_grad():
        return -model.text_loss(batch).total.item()


def slow_loss(model: GraphLM, example: Example, scorer: list[float]) -> tuple[float, float, float]:
    """Losses of choice, text and scorer, candidate by candidate."""
    entities = candidate_entities(example)
    answers = example.conversation.turns[example.turn].answers
    gold = [any(same_entity(entity, answer) for answer in answers) for entity in entities]
    best = sorted(range(len(entities)), key=lambda i: -scorer[i])[
        : model.config.scorer.num_proposals
    ]
    prompt = choice_builder().prompt
    labels = [prompt.target_ids(entities[i].label)[:MAX_LABEL_TOKENS] for i in best]
    weight = model.config.scorer.weight
    scores = [
        logprob_of(model, example, ids) + weight * scorer[i]
        for ids, i in zip(labels, best, strict=True)
    ]
    is_gold = [gold[i] for i in best]
    text = logprob_of(model, example, example.target_ids)
    if not any(is_gold):
        scores.append(text + weight * min((scorer[i] for i in best), default=0.0))
        is_gold.append(True)
    held = [score for score, right in zip(scores, is_gold, strict=True) if right]
    choice = np.logaddexp.reduce(scores) - np.logaddexp.reduce(held)
    named = [logprob for logprob, right in zip(scorer, gold, strict=True) if right]
    return float(choice), -text, -float(np.logaddexp.reduce(named)) if named else 0.0


def scorer_logprobs(model: GraphLM, example: Example) -> list[float]:
    with torch.no_grad():
        found: list[float] = model.entity_logprobs(collate([example], "left", False)).tolist()
    return found


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_loss_is_that_of_candidate_after_candidate(attention: str) -> None:
    model = stir(tiny_model(**SETTINGS))
    model.causal_lm.get_base_model().set_attn_implementation(attention)
    batch = [*examples(7), unnamed("Does it rain?", Answer("yes, it does"))]
    missing = 0
    for example in batch:
        choice, text, scorer = slow_loss(model, example, scorer_logprobs(model, example))
        loss = model(collate([example], "right", with_target=True))
        assert loss.total.item() == pytest.approx(text, rel=1e-4)
        assert float(loss.choice) == pytest.approx(choice, rel=1e-4, abs=1e-5)
        assert float(loss.scorer) == pytest.approx(scorer, rel=1e-4, abs=1e-5)
        assert int(loss.num_tokens) == len(example.target_ids)
        missing += not choice > 0
    assert missing < len(batch)
    assert slow_loss(model, batch[-1], [])[0] == 0  # there is nothing to choose from


def test_the_gold_answer_is_added_where_it_is_not_proposed() -> None:
    model, [example] = stir(tiny_model(**SETTINGS)), examples(1)
    lost = (Answer("Atlantis", "Q-Atlantis"),)
    turn = replace(example.conversation.turns[0], answers=lost)
    turns = (turn, *example.conversation.turns[1:])
    ids = choice_builder().prompt.target_ids("Atlantis")
    other = replace(
        example, conversation=replace(example.conversation, turns=turns), target_ids=ids
    )
    choice, text, scorer = slow_loss(model, other, scorer_logprobs(model, other))
    loss = model(collate([other], "right", with_target=True))
    assert (choice > 0, scorer) == (True, 0.0)
    assert loss.total.item() == pytest.approx(text, rel=1e-4)
    assert float(loss.choice) == pytest.approx(choice, rel=1e-4)
    assert float(loss.scorer) == 0


def test_a_batch_is_its_examples_one_by_one() -> None:
    model = stir(tiny_model(**SETTINGS))
    batch = [*examples(6), unnamed("Does it rain?", Answer("yes"))]
    together = model(collate(batch, "right", with_target=True))
    alone = [model(collate([one], "right", with_target=True)) for one in batch]
    for name in ("total", "choice", "scorer", "num_tokens"):
        wanted = sum(float(getattr(loss, name)) for loss in alone)
        assert float(getattr(together, name)) == pytest.approx(wanted, rel=1e-5)


def test_one_pass_writes_what_the_cached_path_writes() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(5)
    tensors = collate(batch, "left", with_target=False)
    proposals, written = model.choose(tensors)
    assert tensors.candidates is not None
    assert tensors.candidates.label_ids is not None
    ids = tensors.candidates.label_ids[proposals.indices.flatten()]
    counts = torch.full((len(batch),), proposals.indices.shape[1])
    cached = model.answer_logprobs(tensors, ids, counts)
    assert torch.allclose(written.flatten(), cached, atol=1e-4)


def test_gradients_reach_lora_and_scorer() -> None:
    model = stir(tiny_model(**SETTINGS)).train()
    loss = model(collate(examples(4), "right", with_target=True))
    loss.means(int(loss.num_tokens), 4).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all(), name
            # a shift of all scores changes no probability
            assert parameter.grad.any() or name == "scorer.score.3.bias", name
    model.zero_grad()
    bare = model(collate([unnamed("Rain?", Answer("yes"))], "right", with_target=True))
    bare.means(1, 1).sum().backward()  # data parallelism needs all gradients in every process
    grads = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads)


def test_the_choice_moves_both() -> None:
    model = stir(tiny_model(**SETTINGS))
    batch = collate(examples(4), "right", with_target=True)
    proposals, written = model._written(batch, batch.candidates, model.entity_logprobs(batch))
    for scores in (proposals.logprobs, written.labels):
        grads = torch.autograd.grad(
            scores.sum(), [p for p in model.parameters() if p.requires_grad],
            retain_graph=True, allow_unused=True,
        )  # fmt: skip
        assert any(grad is not None and bool(grad.any()) for grad in grads)


def test_it_learns_and_chooses_entities() -> None:
    model, batch = tiny_model(**SETTINGS), examples(9)
    given = ["--data.train=x", "--training.encoder_learning_rate=0.01"]
    settings = load_config([*given, "--training.learning_rate=0.01"]).training
    optimizer = make_optimizer(model, settings)
    tensors = collate(batch, "right", with_target=True)
    for _ in range(40):
        loss = model(tensors)
        optimizer.zero_grad()
        loss.means(int(loss.num_tokens), len(batch)).sum().backward()
        optimizer.step()
    records = answer_together(model, choice_builder().prompt, batch, batch_size=4)
    for example, record in zip(batch, records, strict=True):
        assert record["hit_at_1"]
        assert record["answer"] == record["candidates"][0]["label"]
        assert len(record["candidates"]) == min(3, len(candidate_entities(example)))
        found = record["candidates"]
        chances = [math.exp(one["logprob"]) for one in found]
        assert sum(chances) == pytest.approx(1, abs=1e-3)
        scores = [one["written"] + SCORER.weight * one["proposed"] for one in found]
        assert scores == sorted(scores, reverse=True)


def test_one_by_one_is_answered_as_in_batches() -> None:
    model = stir(tiny_model(**SETTINGS))
    batch = [*examples(6), unnamed(), *examples(3)]
    prompt = choice_builder().prompt
    one, many = (
        answer_together(model, prompt, batch, batch_size=size, max_new_tokens=6) for size in (1, 5)
    )
    for alone, together in zip(one, many, strict=True):
        assert alone["answer"] == together["answer"]
        assert alone["logprob"] == pytest.approx(together["logprob"], abs=2e-3)
    assert all("written" in found for record in one[:6] for found in record["candidates"])


def test_where_nothing_is_named_the_lm_writes() -> None:
    model, bare = stir(tiny_model(**SETTINGS)), unnamed()
    prompt = choice_builder().prompt
    [record] = answer_together(model, prompt, [bare], max_new_tokens=6)
    batch = collate([bare], "left", with_target=False)
    ids = model.generate(batch, 6, prompt.end_id).ids[0].tolist()
    assert record["answer"] == prompt.answer_text(ids)
    assert record["candidates"] == []


def test_prompt_and_graph_are_those_of_text_and_of_nodes() -> None:
    for limit in (16, 40, 60, 1000):
        choice = examples(6, max_prompt_nodes=limit)
        text = [
            e
            for n in range(2)
            for e in tiny_builder(max_nodes=limit).conversation(tiny_conversation(n))
        ]
        nodes = examples(6, max_prompt_nodes=None)
        for one, as_text, of_nodes in zip(choice, text, nodes, strict=True):
            assert one.graph.prompt_ids.tolist() == as_text.graph.node_ids.tolist()
            assert (one.prefix_ids, one.suffix_ids) == (as_text.prefix_ids, as_text.suffix_ids)
            for name in ("node_ids", "edge_index", "edge_types"):
                assert np.array_equal(getattr(one.graph, name), getattr(of_nodes.graph, name))
            assert one.evidence == of_nodes.evidence
            assert one.answer_sources == of_nodes.answer_sources
            assert one.graph.num_question == of_nodes.graph.num_hidden
            builder = choice_builder(max_prompt_nodes=limit)
            assert builder.num_in_prompt(one.evidence) == len(as_text.evidence)
            assert builder.num_in_prompt([]) == 0


def test_nodes_beyond_the_prompt_know_their_passage() -> None:
    [example] = examples(1, max_prompt_nodes=16)
    data, sizes = example.to_pyg(), example.graph.mentions.sizes  # type: ignore[union-attr]
    expected = [*np.repeat(np.arange(len(sizes) - 1), sizes[:-1]), *[-1] * sizes[-1]]
    assert data.passage.tolist() == expected
    assert example.graph.num_hidden > sizes[-1]


def test_the_examples_cache_keeps_labels(tmp_path: Path) -> None:
    write_conversations(tmp_path / "c.jsonl", [tiny_conversation(0), tiny_conversation(1)])
    builder = choice_builder()
    built, read = (
        load_examples(builder, tmp_path / "c.jsonl", None, DataConfig(), 0) for _ in "ab"
    )
    for one, other in zip(built, read, strict=True):
        assert one.graph.mentions is not None
        assert other.graph.mentions is not None
        labels = [builder.prompt.target_ids(e.label) for e in candidate_entities(one)]
        assert [list(ids) for ids in one.graph.mentions.labels] == labels
        assert list(other.graph.mentions.labels) == labels
        assert one.graph.num_question == other.graph.num_question > 0
    without = load_examples(
        replace(builder, labels=False), tmp_path / "c.jsonl", None, DataConfig(), 0
    )
    assert all(e.graph.mentions and not e.graph.mentions.labels for e in without)


def test_long_labels_are_cut() -> None:
    name = "a very " * 40 + "long name"
    builder = choice_builder()
    [ids] = builder._tokens.labels(builder.prompt, [name])
    assert ids == builder.prompt.target_ids(name)[:MAX_LABEL_TOKENS]


def test_a_checkpoint_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stir(tiny_model(**SETTINGS))
    config = Config(
        DataConfig(train="x.jsonl"),
        EvidenceConfig(**EVIDENCE),  # type: ignore[arg-type]
        model=replace(model.config, base_model="tiny"),
    )
    save_checkpoint(model, config, {}, tmp_path / "c")
    monkeypatch.setattr("turngraph.model.graph_lm.load_base_model", lambda *_: tiny_base())
    monkeypatch.setattr("turngraph.model.checkpoint.empty_base_model", lambda *_: tiny_base())
    again, prompt = load_checkpoint(tmp_path / "c"), choice_builder().prompt
    found, wanted = (
        [
            record | {"milliseconds": 0}
            for record in answer_together(one, prompt, [*examples(5), unnamed()], max_new_tokens=6)
        ]
        for one in (again, model)
    )
    assert found == wanted


def test_a_chosen_answer_is_explained_by_what_the_lm_has_read() -> None:
    model, builder = stir(tiny_model(**SETTINGS)), choice_builder()
    [example] = examples(1)
    [record] = answer_together(model, builder.prompt, [example])
    explained = why(model, builder, example, record["answer"])
    num = builder.num_in_prompt(example.evidence)
    assert 0 < num < len(example.evidence)
    assert len(explained.passages) == num
    assert sum(passage.share for passage in explained.passages) == pytest.approx(1)
    assert [passage.reason for passage in explained.dropped] == ["scorer"] * (
        len(example.evidence) - num
    )
    ids = builder.prompt.target_ids(record["answer"])
    assert explained.logprob == pytest.approx(logprob_of(model, example, ids), abs=1e-4)
    assert explained.logprob == pytest.approx(record["candidates"][0]["written"], abs=1e-3)


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "gemma3_text"])
def test_lms_of_full_attention_are_accepted(architecture: str) -> None:
    model = stir(tiny_model(architecture, **SETTINGS))
    [example] = examples(1)
    tensors = collate([example], "left", with_target=False)
    proposals, written = model.choose(tensors)
    labels = tensors.candidates.label_ids[proposals.indices[0]].tolist()  # type: ignore
    for ids, logprob in zip(labels, written[0].tolist(), strict=True):
        wanted = logprob_of(model, example, [i for i in ids if i >= 0])
        assert logprob == pytest.approx(wanted, abs=1e-3)


def test_an_lm_with_a_window_is_refused() -> None:
    model = tiny_model("gemma3_text", **SETTINGS)
    with pytest.raises(ValueError, match=r"choice given, but gemma3_text has layers with sliding"):
        model(collate(examples(1), "right", with_target=True))


def test_an_lm_that_reads_columns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny_base()
    call = lm.forward

    def without_positions(*args: Any, position_ids: Any, **more: Any) -> Any:
        length = position_ids.shape[1]
        return call(*args, position_ids=torch.arange(length)[None], **more)

    monkeypatch.setattr(lm, "forward", without_positions)
    with pytest.raises(ValueError, match="reads proposals otherwise together than one by one"):
        check_branches(lm)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["model.evidence=graph"], "model.evidence: 'graph' given, must be text where"),
        (["evidence.question_nodes=none"], "question_nodes: 'none' given, must be question or"),
        (["training.packing=true"], "packing: True given, must be false where model.answers is"),
        (["model.compile=true"], "model.compile: True given, must be false"),
        (
            ["model.attn_implementation=flex_attention"],
            "attn_implementation: 'flex_attention' given, must be sdpa or eager, which take a mask",
        ),
        (["model.scorer.weight=-1"], "model.scorer.weight: -1.0 given, must be a number from 0"),
        (["model.scorer.num_proposals=0"], "num_proposals: 0 given, must be at least 1"),
        (
            ["model.scorer.init=x", "data.table_questions=5"],
            "model.scorer.init: 'x' given, must be null where data.table_questions",
        ),
        (["evidence.max_prompt_nodes=3"], "max_prompt_nodes: 3 given, must be at least 16"),
        (["model.answers=text", "evidence.max_prompt_nodes=99"], "must be null unless model.ans"),
        (["model.answers=text", "model.scorer.init=x"], "init: 'x' given, must be null unless"),
        (["training.loop=trl"], "model.answers: 'choice' given, must be text where"),
        (["scorer_training.batch_size=0"], "scorer_training.batch_size: 0 given, must be positive"),
        (["scorer_training.max_steps=0"], "scorer_training.max_steps: 0 given, must be positive"),
        (["data.train_repeats=0"], "train_repeats: 0 given, must be at least 1"),
    ],
)
def test_settings_that_do_not_go_together_are_named(options: list[str], message: str) -> None:
    given = ["data.train=x", "model.answers=choice", "evidence.question_nodes=query"]
    given += ["model.evidence=text"]
    with pytest.raises(ValueError, match=message):
        load_config([f"--{option}" for option in (*given, *options)])
