"""Answers from nodes: scores of entities, worked out by hand and beside one by one; training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from turngraph.configs.parse import load_config
from turngraph.configs.schema import ScorerConfig
from turngraph.data.batches.collate import (
    candidate_entities,
    collate,
    join_candidates,
    with_gold_candidates,
)
from turngraph.data.graph.chain_graph import Mentions
from turngraph.data.scoring.proposals import NUM_PROPOSALS
from turngraph.data.types import Answer, Conversation, Turn
from turngraph.inference.answer_batches import NO_ENTITY, answer_together
from turngraph.model.checkpoint import read_checkpoint
from turngraph.model.node_answers import NodeAnswers, NodeScores, log_sum_exp
from turngraph.tests.scorer_examples import EVIDENCE, examples, reloaded, scored
from turngraph.tests.tiny import (
    stir,
    tiny_builder,
    tiny_conversation,
    tiny_examples,
    tiny_model,
)
from turngraph.training.optimizer import make_optimizer

SCORER = ScorerConfig(num_layers=2, width=16, dropout=0.0)
SETTINGS = {"answers": "nodes", "lora": None, "scorer": SCORER}


def test_log_sum_exp_of_parts() -> None:
    values = torch.tensor([0.0, 1.0, -torch.inf, -torch.inf, 1000.0, 1000.0], requires_grad=True)
    lengths = torch.tensor([2, 0, 1, 1, 2])
    found = log_sum_exp(values, lengths)
    wanted = [np.log(1 + np.e), -np.inf, -np.inf, -np.inf, 1000 + np.log(2)]
    assert found.tolist() == pytest.approx(wanted)
    found[[0, 4]].sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx(
        [1 / (1 + np.e), np.e / (1 + np.e), 0, 0, 0.5, 0.5]
    )
    assert log_sum_exp(torch.empty(0), torch.tensor([0, 0])).tolist() == [-np.inf] * 2


def test_two_heads_share_what_the_evidence_holds_and_entities_need_a_candidate() -> None:
    unused, kinds = torch.empty(0), torch.randn(3, 3).log_softmax(1)
    scores = NodeScores(entities=unused, mentions=unused, spans=None, kinds=kinds, states=unused)
    shares = scores.shares(torch.arange(3)).exp()
    assert torch.allclose(shares.sum(1), scores.held)
    assert (shares[:, 0] > 0).tolist() == [False, True, True]


def test_mentions_stand_where_their_entities_are_named() -> None:
    builder = replace(tiny_builder(**EVIDENCE), mentions=True)
    for example in builder.conversation(tiny_conversation(1)):
        mentions = example.graph.mentions
        assert mentions is not None
        names = [entity.label for entity in candidate_entities(example)]
        numbers = np.unique(mentions.entities).tolist()
        tokens = [builder.prompt.tokenizer.decode([i]) for i in example.graph.node_ids]
        assert sum(mentions.sizes) == len(tokens)
        for entity, node in zip(mentions.entities, mentions.nodes, strict=True):
            label, said = names[numbers.index(entity)], ""
            for token in reversed(tokens[: node + 1]):
                said = token + said
                if len(said.strip()) >= len(label):
                    break
            assert said.strip().endswith(label)
        asked = "".join(tokens[-mentions.sizes[-1] :])
        assert asked.endswith(example.conversation.turns[example.turn].question)


def test_candidates_know_which_of_them_is_gold_and_where_they_stand() -> None:
    batch = examples(5)
    joined = join_candidates(batch, with_gold=True)
    assert joined.gold is not None
    first = 0
    for number, example in enumerate(batch):
        entities = candidate_entities(example)
        assert joined.num_candidates[number] == len(entities)
        gold = joined.gold[first : first + len(entities)].tolist()
        [answer] = example.conversation.turns[example.turn].answers
        assert [entity.label == answer.label for entity in entities] == gold
        assert sum(gold) == 1
        first += len(entities)
    ends = joined.segment_sizes.cumsum(0)
    starts = ends - joined.segment_sizes
    assert bool((joined.nodes >= starts[joined.segments]).all())
    assert bool((joined.nodes < ends[joined.segments]).all())
    assert joined.features[0].tolist() == [1.0, 0.0, 0.0]  # the best passage
    assert joined.features[joined.questions].tolist() == [[0.0, 0.0, 0.0]] * len(batch)


def test_examples_without_a_gold_candidate_are_left_out_of_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    known, other = examples(2)
    turn = replace(other.conversation.turns[other.turn], answers=(Answer("nobody", "Nobody"),))
    unknown = replace(other, conversation=replace(other.conversation, turns=[turn]), turn=0)
    assert with_gold_candidates([known, unknown, unknown], "t.jsonl") == [known]
    assert "t.jsonl: 2 questions left out of training: their passages" in caplog.text
    assert with_gold_candidates([known, other], "t.jsonl") == [known, other]
    assert len(caplog.messages) == 1
    with pytest.raises(ValueError, match=r"t\.jsonl: none of 1 question has a gold answer in its"):
        with_gold_candidates([unknown], "t.jsonl")


def test_a_batch_scores_as_its_examples_do_one_by_one() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(6)
    together = scored(model, batch)
    for example, logprobs in zip(batch, together, strict=True):
        assert logprobs == pytest.approx(scored(model, [example])[0], abs=1e-5)
        assert np.exp(logprobs).sum() == pytest.approx(1, abs=1e-5)


def test_the_loss_is_that_of_the_gold_answers() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(6)
    loss = model(collate(batch, "right", with_target=True))
    wanted = 0.0
    for example, logprobs in zip(batch, scored(model, batch), strict=True):
        [answer] = example.conversation.turns[example.turn].answers
        labels = [entity.label for entity in candidate_entities(example)]
        wanted -= logprobs[labels.index(answer.label)]
    assert float(loss.total.detach()) == pytest.approx(wanted, rel=1e-4)
    assert int(loss.num_tokens) == sum(len(example.target_ids) for example in batch)


def test_what_the_evidence_does_not_hold_is_not_learnt_from() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(6)
    alone = model(collate(batch[:1], "right", with_target=True)).total
    turn = batch[3].conversation.turns[batch[3].turn]
    lost = replace(turn, answers=(replace(turn.answers[0], label="Atlantis", id="Q-Atlantis"),))
    turns = [lost if t.id == turn.id else t for t in batch[3].conversation.turns]
    other = replace(batch[3], conversation=replace(batch[3].conversation, turns=tuple(turns)))
    both = model(collate([batch[0], other], "right", with_target=True)).total
    assert both.item() == pytest.approx(alone.item(), rel=1e-5)
    none = model(collate([other], "right", with_target=True)).total
    assert none.item() == 0.0
    both.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert all(bool(grad.isfinite().all()) for grad in grads)


def test_twice_as_much_is_dropped_before_a_score() -> None:
    layers = NodeAnswers(8, replace(SCORER, dropout=0.1), spans=True).modules()
    assert [layer.p for layer in layers if isinstance(layer, nn.Dropout)] == [0.1, 0.2, 0.2]


def test_states_are_dropped_before_the_first_layer_and_in_each() -> None:
    model, shapes = stir(tiny_model(**SETTINGS)), list[tuple[int, ...]]()
    model.scorer.dropout.register_forward_hook(
        lambda _, __, dropped: shapes.append(tuple(dropped.shape))
    )
    [example] = examples(1)
    scored(model, [example])
    assert shapes == [(len(example.graph.node_ids), SCORER.width)] * (1 + SCORER.num_layers)


def test_the_size_of_embeddings_does_not_matter() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(3)
    model.embeddings.weight.data *= 10.0
    before = scored(model, batch)
    model.embeddings.weight.data *= 10.0
    for one, other in zip(scored(model, batch), before, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def test_a_question_without_a_token_is_no_question() -> None:
    model, builder = stir(tiny_model(**SETTINGS)), replace(tiny_builder(), mentions=True)
    [example] = examples(1)
    bare = replace(example, graph=builder.graph([item.evidence for item in example.evidence]))
    assert bare.graph.mentions is not None
    assert bare.graph.mentions.sizes[-1] == 0
    [alone] = scored(model, [bare])
    assert np.exp(alone).sum() == pytest.approx(1, abs=1e-5)
    assert scored(model, [example, bare])[1] == pytest.approx(alone, abs=1e-5)


def test_it_learns_and_answers_with_entities() -> None:
    model, batch = tiny_model(**SETTINGS), examples(9)
    settings = load_config(["--data.train=x", "--training.encoder_learning_rate=0.01"]).training
    optimizer = make_optimizer(model, settings)
    tensors = collate(batch, "right", with_target=True)
    for _ in range(60):
        loss = model(tensors).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    records = answer_together(model, tiny_builder().prompt, batch, 8, batch_size=4)
    for example, record in zip(batch, records, strict=True):
        labels = {entity.label for entity in candidate_entities(example)}
        assert record["hit_at_1"]
        assert record["answer"] == record["candidates"][0]["label"]
        assert len(record["candidates"]) == min(NUM_PROPOSALS, len(labels))
        assert -0.7 < record["logprob"] <= 0


def test_evidence_without_entities_has_no_answer() -> None:
    builder = replace(tiny_builder(**EVIDENCE), mentions=True)
    known = tiny_conversation(0)
    bare = Conversation("bare", "", (Turn("0", "Does it rain?"),), known.evidence[4:5])
    batch = [*builder.conversation(bare), *builder.conversation(known)[:1]]
    records = answer_together(stir(tiny_model(**SETTINGS)), builder.prompt, batch, 8, batch_size=2)
    assert [record["candidates"] == [] for record in records] == [True, False]
    assert (records[0]["answer"], records[0]["logprob"]) == ("", NO_ENTITY)


def test_a_batch_in_which_nothing_is_named_can_be_trained_on() -> None:
    builder, model = replace(tiny_builder(**EVIDENCE), mentions=True), stir(tiny_model(**SETTINGS))
    known = tiny_conversation(0)
    turn = Turn("0", "Does it rain?", (Answer("yes"),))
    bare = Conversation("bare", "", (turn,), known.evidence[4:5])
    loss = model(collate(builder.conversation(bare), "right", with_target=True)).total
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    assert loss.item() == 0
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_a_checkpoint_gives_the_same_answers(tmp_path: Path) -> None:
    model = stir(tiny_model(**SETTINGS))
    again = reloaded(model, tmp_path / "c")
    assert sorted(p.name for p in (tmp_path / "c").glob("*.safetensors")) == [
        "node_answers.safetensors"
    ]
    assert scored(again, examples(3)) == scored(model, examples(3))
    with pytest.raises(ValueError, match=r"model.answers is nodes, so that no text is generated"):
        read_checkpoint(tmp_path / "c").check_writes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["lora.r=4"],
            "model.lora: .LoRA. given, must be null where model.answers is nodes and model",
        ),
        (["lora=null", "evidence=text"], "model.evidence: 'text' given, must be graph"),
        (["lora=null", "scorer.width=6"], "model.scorer.width: 6 given, must be a multiple of 4"),
        (["lora=null", "scorer.width=0"], "model.scorer.width: 0 given, must be a multiple of 4"),
        (["lora=null", "scorer.dropout=0.5"], r"model.scorer.dropout: 0.5 given, must lie in"),
    ],
)
def test_settings_that_do_not_go_together_are_named(options: list[str], message: str) -> None:
    given = ["--data.train=x", "--model.answers=nodes", "--evidence.graph=reader"]
    with pytest.raises(ValueError, match=message):
        load_config([*given, *(f"--model.{option}" for option in options)])


def test_a_question_and_rows_of_their_own_are_needed() -> None:
    given = ["--data.train=x", "--model.answers=nodes", "--model.lora=null"]
    with pytest.raises(ValueError, match=r"graph: 'paper' given, must be reader"):
        load_config(given)
    with pytest.raises(ValueError, match=r"training.packing: True given, must be false"):
        load_config([*given, "--evidence.graph=reader", "--training.packing=true"])


def test_a_mention_at_the_first_token_belongs_to_its_own_segment() -> None:
    (example,) = tiny_examples(1)
    example = replace(example, evidence=example.evidence[:2])
    mentions = Mentions(np.array([0, 1, 2]), np.array([0, 3, 5]), np.array([3, 2, 4]))
    example = replace(example, graph=replace(example.graph, mentions=mentions))
    joined = join_candidates([example, example], with_gold=False)
    assert joined is not None
    assert joined.segments.tolist() == [0, 1, 2, 3, 4, 5]
    many = Mentions(np.arange(40) % 2, np.arange(40), np.array([9, 27, 4]))
    joined = join_candidates([replace(example, graph=replace(example.graph, mentions=many))], False)
    assert joined is not None
    assert joined.nodes.tolist() == [*range(0, 40, 2), *range(1, 40, 2)]


@pytest.mark.parametrize(("scores", "expected"), [((4.0, 1.0), (1.0, 0.25)), ((0.0, -1.0), (0, 0))])
def test_a_passage_is_known_by_its_score_its_rank_and_its_turn(
    scores: tuple[float, float], expected: tuple[float, float]
) -> None:
    [*_, example] = examples(2)
    assert example.turn == 1
    found = zip(example.evidence, scores, (1, 0), strict=False)
    evidence = [replace(item, score=score, from_turn=turn) for item, score, turn in found]
    joined = join_candidates([replace(example, evidence=evidence)], with_gold=False)
    assert joined is not None
    rows = [[expected[0], 0.0, 0.0], [expected[1], np.log(2), 1.0], [0.0, 0.0, 0.0]]
    assert joined.features.numpy() == pytest.approx(np.array(rows))
