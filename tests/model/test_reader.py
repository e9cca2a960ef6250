"""The reader: passages read after the question, pruned by the graph, and written from."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from turngraph.configs.schema import ScorerConfig
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.examples import Example
from turngraph.data.graph.mentions import find_answers
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.metrics import answer_value
from turngraph.data.types import NOT_IN_EVIDENCE, Answer
from turngraph.inference.answer_batches import answer_together
from turngraph.model import generation
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.graph_at_layer import kept_tokens, rows_above
from turngraph.model.node_answers import LONGEST_SPAN, mixture_loss
from turngraph.model.reader import Reader
from turngraph.model.reader_layers import FAMILIES
from turngraph.tests.scorer_examples import read_examples, reader_builder, reloaded
from turngraph.tests.tiny import (
    ARCHITECTURES,
    END_ID,
    LORA,
    stir,
    tiny_builder,
    tiny_conversation,
    tiny_model,
)

SCORER = ScorerConfig(num_layers=2, width=16, dropout=0.0, kept_nodes=24)


def reader(architecture: str = "llama", **settings: Any) -> Reader:
    given = {"layer": 1, "scorer": SCORER, "lora": LORA} | settings
    model = tiny_model(architecture, **given)
    assert isinstance(model, Reader)
    stir(model)
    return model


def batch_of(examples: list[Example], with_target: bool = True) -> Batch:
    return collate(examples, "right" if with_target else "left", with_target)


def one_by_one(model: Reader, example: Example) -> list[Tensor]:
    """States after layer 1 of prefix, passages and suffix with the answer, by plain rows."""
    assert example.graph.mentions is not None
    *sizes, _ = example.graph.mentions.sizes.tolist()
    passages = np.split(example.graph.prompt_ids, np.cumsum(sizes)[:-1])
    lm, prefix = model.causal_lm, example.prefix_ids
    rows = [[], *(p.tolist() for p in passages), [*example.suffix_ids, *example.target_ids]]
    found = []
    for row in rows:
        ids = torch.tensor([[*prefix, *row]])
        with torch.no_grad():
            states = lm(input_ids=ids, output_hidden_states=True).hidden_states[1][0]
        found.append(states[len(prefix) :] if row else states)
    return found


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_passages_in_one_row_are_read_as_one_by_one(architecture: str) -> None:
    model, examples = reader(architecture), read_examples(5)
    batch = batch_of(examples)
    assert batch.reading is not None
    with torch.no_grad():
        states = model.read(batch).states
    wanted = [part for example in examples for part in one_by_one(model, example)]
    torch.testing.assert_close(states, torch.cat(wanted), atol=2e-5, rtol=1e-4)


def test_the_nodes_are_the_tokens_of_the_graph() -> None:
    examples = read_examples(4)
    batch = batch_of(examples)
    assert batch.reading is not None
    ids = np.concatenate([example.graph.node_ids for example in examples])
    assert batch.reading.token_ids[batch.reading.nodes].tolist() == ids.tolist()


def test_an_answers_places_hold_its_words() -> None:
    prompt = Prompt(tiny_builder().prompt.tokenizer)
    for example in read_examples(6):
        assert example.graph.mentions is not None
        places = example.graph.mentions.answers.T.tolist()
        [answer] = example.conversation.turns[example.turn].answers
        texts = {
            prompt.answer_text(example.graph.node_ids[first : last + 1].tolist())
            for first, last in places
        }
        assert texts == {answer.label}
    assert find_answers([], [], []).dtype == np.int64  # as of the others, which it is joined with


def slow_spans(model: Reader, batch: Batch) -> list[dict[tuple[int, int], float]]:
    """Log-probability of each span of each example by first and last node, worked out slowly."""
    scorer, seen = model.graph.scorer, list[tuple[Tensor, Tensor]]()
    assert scorer.spans is not None
    hook = scorer.spans[-1].register_forward_hook(
        lambda module, given, result: seen.append((given[0], result))
    )
    with torch.no_grad():
        model.read(batch)
        hook.remove()
        [(hidden, both)] = seen
        product = scorer.first(hidden) @ scorer.last(hidden).T / scorer.last.out_features**0.5
        lengths = scorer.length.tolist()
    assert batch.candidates is not None
    questions = batch.candidates.questions.tolist()
    found: list[dict[tuple[int, int], float]] = [{}]
    begin = 0
    for segment, size in enumerate(batch.candidates.segment_sizes.tolist()):
        is_question = segment in questions
        for a in () if is_question else range(begin, begin + size):
            for b in range(a, min(a + LONGEST_SPAN, begin + size)):
                own = both[a, 0] + both[b, 1] + product[a, b]
                found[-1][a, b] = float(own) + lengths[b - a]
        begin += size
        if is_question:
            total = np.logaddexp.reduce(list(found[-1].values()))
            found[-1] = {place: score - total for place, score in found[-1].items()}
            found.append({})
    return found[:-1]


def test_spans_are_scored_by_both_ends_within_a_passage() -> None:
    model, examples = reader(), read_examples(3)
    batch = batch_of(examples)
    with torch.no_grad():
        spans = model.read(batch).scores.spans
    assert spans is not None
    wanted = [pair for own in slow_spans(model, batch) for pair in own.items()]
    assert len(wanted) == int(spans.isfinite().sum())
    found = [float(spans[a, b - a]) for (a, b), _ in wanted]
    assert found == pytest.approx([logprob for _, logprob in wanted], abs=1e-4)


def test_probabilities_sum_to_1_in_bfloat16() -> None:
    model, examples = reader(), read_examples(3)
    batch = batch_of(examples)
    assert batch.candidates is not None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):  # as a model in bfloat16 answers
        scores = model.node_scores(batch)
    assert scores.spans is not None
    assert scores.kinds is not None
    entities = scores.entities.split(batch.candidates.num_candidates.tolist())
    spans = scores.spans.split([len(example.graph.node_ids) for example in examples])
    for logprobs in (*entities, *spans, *scores.kinds):
        assert float(logprobs.double().exp().sum()) == pytest.approx(1, abs=1e-5)


def test_a_node_is_as_likely_as_what_ends_at_it() -> None:
    """Half is said by the mentions that end there, a quarter by the spans at either end."""
    model, examples = reader(), read_examples(3)
    batch = batch_of(examples)
    assert batch.candidates is not None
    with torch.no_grad():
        scores = model.read(batch).scores
        found = model.graph.probabilities(scores, batch.candidates, len(scores.states))
    wanted = np.zeros(len(found))
    np.add.at(wanted, batch.candidates.nodes.numpy(), scores.mentions.exp().numpy() / 2)
    for spans in slow_spans(model, batch):
        for ends, logprob in spans.items():
            np.add.at(wanted, list(ends), np.exp(logprob) / 4)
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-5)
    assert float(found.sum()) == pytest.approx(len(examples), abs=1e-4)


def test_what_the_graph_says_is_added_to_passages_in_the_size_of_their_states() -> None:
    model, batch = reader(), batch_of(read_examples(3))
    graph, reading = model.graph, batch.reading
    assert reading is not None
    assert batch.candidates is not None
    with torch.no_grad():
        read = model.read(batch)
        likely = graph.probabilities(read.scores, batch.candidates, len(reading.nodes))
        _, found = model.rows(batch, read, padded_left=False)
        wanted = read.states.clone()
        for node, token in enumerate(reading.nodes.tolist()):
            if reading.passages[token] >= 0:  # not of the question
                said = graph.residual_gate * graph.up(read.scores.states[node])
                said = said + likely[node] * graph.mark
                wanted[token] += said * read.states[token].square().mean().sqrt()
    torch.testing.assert_close(found, wanted)


def test_the_size_of_a_state_is_not_differentiated() -> None:
    model = reader()
    scores = model.read(batch_of(read_examples(1))).scores
    num, width = len(scores.states), model.graph.up.out_features
    states = torch.randn(num, width, requires_grad=True)
    added = model.graph.added(states, scores, torch.rand(num)).sum()
    assert added.requires_grad
    assert torch.autograd.grad(added, states, allow_unused=True) == (None,)


def test_the_mixture_leaves_both_heads_alone() -> None:
    model, batch = reader(), batch_of(read_examples(4))
    assert batch.reading is not None
    assert batch.candidates is not None
    scores = model.read(batch).scores
    heads = {
        name: getattr(scores, name).detach().requires_grad_()
        for name in ("entities", "spans", "kinds")
    }
    places = batch.reading.answers, batch.reading.num_answers
    mixture_loss(scores._replace(**heads), batch.candidates, *places).backward()
    assert heads["kinds"].grad.abs().sum() > 0
    assert heads["entities"].grad is heads["spans"].grad is None


def test_scores_beyond_a_height_say_no_more_of_the_kind() -> None:
    model, batch, found = reader(), batch_of(read_examples(2)), {}
    for shift in (-900.0, -90.0, 0.0, 90.0, 900.0):
        with torch.no_grad():
            model.graph.scorer.score[-1].bias.fill_(shift)
            found[shift] = model.read(batch).scores.kinds
    assert torch.equal(found[-900.0], found[-90.0])
    assert torch.equal(found[900.0], found[90.0])
    assert len({kinds[0, 0].item() for kinds in found.values()}) == 3


def test_nodes_are_scored_alone_as_they_are_before_text_is_written() -> None:
    model, batch = reader(), batch_of(read_examples(3))
    with torch.no_grad():
        for one, other in zip(model.node_scores(batch), model.read(batch).scores, strict=True):
            torch.testing.assert_close(one, other)


def test_a_new_graph_adds_nothing() -> None:
    model = tiny_model(layer=1, scorer=SCORER, lora=LORA)
    assert isinstance(model, Reader)
    scores = model.read(batch_of(read_examples(1))).scores
    num, width = len(scores.states), model.graph.up.out_features
    assert not model.graph.added(torch.randn(num, width), scores, torch.rand(num)).any()
    assert not model.graph.scorer.first.weight.any()  # nor to the scores of a span's two ends


def test_an_answer_beyond_the_longest_span_is_not_taken_for_none() -> None:
    model, examples = reader(), read_examples(1)
    batch = batch_of(examples)
    assert batch.reading is not None
    assert batch.candidates is not None
    with torch.no_grad():
        scores = model.read(batch).scores
    first = torch.tensor([[0], [LONGEST_SPAN]])
    assert scores.span_logprobs(first).tolist() == [-np.inf]
    assert batch.candidates.gold is not None
    no_entity = replace(batch.candidates, gold=torch.zeros_like(batch.candidates.gold))
    assert scores.kinds is not None
    loss = mixture_loss(scores, no_entity, first, torch.tensor([1]))
    assert float(loss) > 50.0
    none = mixture_loss(scores, no_entity, first[:, :0], torch.tensor([0]))
    assert float(none) == pytest.approx(-float(scores.kinds[0, 2]))


def full_row_loss(model: Reader, example: Example) -> tuple[float, float]:
    """The answer's loss by rows of one example, and the scorer's, worked out slowly."""
    batch = batch_of([example])
    with torch.no_grad():
        read = model.read(batch)
        above, states = model.rows(batch, read, padded_left=False)
        rows = model.lm_layers.above(states[above.tokens], above.positions, None)
        logprobs = model.lm_layers.logits(rows)[0].log_softmax(-1)
    target = example.target_ids
    at = logprobs[-len(target) - 1 : -1]
    written = -sum(float(at[i, token]) for i, token in enumerate(target))
    scores, candidates = read.scores, batch.candidates
    assert candidates is not None
    assert candidates.gold is not None
    assert batch.reading is not None
    entity = -float(scores.entities[candidates.gold].logsumexp(0))
    assert scores.kinds is not None
    span = -float(scores.span_logprobs(batch.reading.answers).logsumexp(0))
    chance, other, _ = scores.kinds[0].exp().tolist()
    mixed = -np.log(chance * np.exp(-entity) + other * np.exp(-span))
    return written, entity + span + mixed


def test_the_loss_of_a_batch_is_the_sum_of_its_examples() -> None:
    model, examples = reader(), read_examples(5)
    with torch.no_grad():
        found = model(batch_of(examples))
    parts = [full_row_loss(model, example) for example in examples]
    assert float(found.total) == pytest.approx(sum(map(sum, parts)), rel=1e-4)
    assert int(found.num_tokens) == sum(len(example.target_ids) for example in examples)


def test_the_likeliest_passages_go_on_up_to_a_number_of_tokens() -> None:
    model, examples = reader(), read_examples(4)
    batch = batch_of(examples)
    assert batch.reading is not None
    assert batch.candidates is not None
    with torch.no_grad():
        read = model.read(batch)
        likely = model.graph.probabilities(read.scores, batch.candidates, len(batch.reading.nodes))
    reading, sums = batch.reading, {}
    for node, chance in zip(reading.nodes.tolist(), likely.tolist(), strict=True):
        passage = int(reading.passages[node])
        sums[passage] = sums.get(passage, 0.0) + chance
    kept = kept_tokens(reading, likely, 24)
    passage = 0
    for example, num in enumerate(torch.bincount(reading.owners, minlength=4).tolist()):
        own = range(passage, passage + num)
        wanted: list[int] = []
        for best in sorted(own, key=lambda p: -sums[p]):
            wanted += (reading.passages == best).nonzero().squeeze(1).tolist()
        chosen = (kept & (reading.examples == example)).nonzero().squeeze(1).tolist()
        assert chosen == sorted(wanted[:24])
        passage += num
    assert kept_tokens(reading, likely, None).tolist() == (reading.passages >= 0).tolist()
    lost = kept_tokens(reading, torch.full_like(likely, torch.nan), 24)
    assert torch.bincount(reading.examples[lost]).tolist() == [24] * 4
    above = rows_above(reading, kept, 24, padded_left=True)
    for row in range(len(examples)):
        tokens = above.tokens[row][above.is_token[row]].tolist()
        assert tokens == sorted(tokens)  # in reading order
        assert above.is_token[row].tolist() == sorted(above.is_token[row].tolist())


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_answers_do_not_depend_on_the_batch(architecture: str) -> None:
    model, examples = reader(architecture), read_examples(6)
    alone = [model.generate(batch_of([one], False), 6, END_ID) for one in examples]
    together = model.generate(batch_of(examples, False), 6, END_ID)
    for index, one in enumerate(alone):
        width = one.ids.shape[1]
        assert together.ids[index, :width].tolist() == one.ids[0].tolist()
        assert float(together.logprobs[index]) == pytest.approx(float(one.logprobs[0]), abs=1e-4)


def test_written_answers_have_the_loss_of_training() -> None:
    model, examples = reader(), read_examples(5)
    longest = max(len(example.target_ids) for example in examples)
    ids = torch.full((len(examples), longest), IGNORED_LABEL)
    for row, example in enumerate(examples):
        ids[row, : len(example.target_ids)] = torch.tensor(example.target_ids)
    ones = torch.ones(len(examples), dtype=torch.long)
    found = model.answer_logprobs(batch_of(examples, False), ids, ones)
    wanted = [-full_row_loss(model, example)[0] for example in examples]
    assert found.tolist() == pytest.approx(wanted, abs=1e-3)
    greedy = model.generate(batch_of(examples, False), 6, END_ID)
    again = torch.where(greedy.ids == END_ID, IGNORED_LABEL, greedy.ids)
    ended = (greedy.ids == END_ID).any(1)
    for row in ended.nonzero().squeeze(1).tolist():
        again[row, int((greedy.ids[row] != END_ID).sum())] = END_ID
    same = model.answer_logprobs(batch_of(examples, False), again, ones)
    assert same.tolist() == pytest.approx(greedy.logprobs.tolist(), abs=1e-3)


def test_given_answers_may_be_read_in_parts_of_other_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = reader(), batch_of(read_examples(1), False)
    answers = torch.tensor([[20, 21, 22, END_ID], [30, END_ID, IGNORED_LABEL, IGNORED_LABEL]])
    wanted = model.answer_logprobs(batch, answers, torch.tensor([2])).tolist()
    monkeypatch.setattr(generation, "PROPOSALS_AT_ONCE", 1)
    found = model.answer_logprobs(batch, answers, torch.tensor([2])).tolist()
    assert found == pytest.approx(wanted, abs=1e-4)


def test_gradients_reach_all_that_is_trained() -> None:
    model = reader()
    model.train()
    model(batch_of(read_examples(3))).total.backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    zero = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and p.grad is not None and not p.grad.abs().sum()
    ]
    assert zero == []


def test_gradients_through_pruning_are_those_of_finite_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = reader().double(), batch_of(read_examples(2))
    # the head of kinds alone gets gradients of the mixture
    monkeypatch.setattr(model, "_node_loss", lambda _, scores: 0.0 * scores.states.sum())
    parameters = {
        name: p
        for name, p in model.named_parameters()
        if name in ("graph.up.weight", "graph.mark", "graph.scorer.project.weight")
        or name.endswith("self_attn.q_proj.lora_A.default.weight")
    }
    assert len(parameters) == 5
    model(batch).total.backward()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        direction, step, values = direction / direction.norm(), 3e-3, []
        # the size of a state, by which what is added is scaled, is not differentiated
        within = 2e-2 if "layers.0.self_attn" in name else 2e-3
        with torch.no_grad():
            for sign in (1, -2):
                parameter += sign * step * direction
                values.append(float(model(batch).total))
            parameter += step * direction
        slope = (values[0] - values[1]) / (2 * step)
        assert float((parameter.grad * direction).sum()) == pytest.approx(
            slope, rel=within, abs=5e-4
        ), name


def test_empty_graphs_and_one_passage() -> None:
    model = reader()
    pools = [(), tiny_conversation(0).evidence[4:5], tiny_conversation(0).evidence[:1]]
    builder = reader_builder()
    examples = [
        builder.conversation(replace(tiny_conversation(0), evidence=pool), [0])[0] for pool in pools
    ]
    together = model(batch_of(examples)).total
    alone = sum(float(model(batch_of([one])).total) for one in examples)
    assert float(together) == pytest.approx(alone, rel=1e-4)
    records = answer_together(model, builder.prompt, examples, max_new_tokens=4)
    assert [len(record["evidence"]) for record in records] == [0, 1, 1]


def test_permuting_passages_permutes_the_nodes() -> None:
    model = reader()
    [example] = read_examples(1)
    builder = reader_builder(edges="no_entity")  # they lead to the first span
    passages = [item.evidence for item in example.evidence]
    dialogue = builder.prompt.dialogue([], example.conversation.turns[0].question)
    order = [4, 2, 0, 1, 3]  # a title and its repetition stay side by side

    def states(wanted: list[int]) -> list[Tensor]:
        graph = builder.graph([passages[i] for i in wanted], dialogue)
        items = [replace(example.evidence[i], score=1.0) for i in wanted]
        batch = batch_of([replace(example, graph=graph, evidence=items)])
        assert batch.candidates is not None
        batch.candidates.features[:] = 0  # the rank in E_t is a feature
        with torch.no_grad():
            found = model.node_scores(batch).states
        assert graph.mentions is not None
        return list(found.split(graph.mentions.sizes.tolist()))

    before, after = states([0, 1, 2, 3, 4]), states(order)
    for place, index in enumerate(order):
        torch.testing.assert_close(after[place], before[index], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(after[-1], before[-1], atol=2e-5, rtol=1e-4)


def test_stopped_at_the_graph_it_has_no_layers_above() -> None:
    writes, ranks = reader(), reader(answers="nodes")
    assert not ranks.writes
    names = {name for name, _ in ranks.named_parameters()}
    assert not any("layers.1." in name and "scorer" not in name for name in names)
    examples = read_examples(4)
    whole, stopped = (
        model.node_scores(batch_of(examples)).entities.tolist() for model in (writes, ranks)
    )
    assert len(whole) == len(stopped)
    builder = reader_builder()
    records = answer_together(ranks, builder.prompt, examples, 8)
    assert all(record["answer"] for record in records)
    [example] = builder.conversation(replace(tiny_conversation(0), evidence=()), [0])
    [record] = answer_together(ranks, builder.prompt, [example], 8)
    assert (record["answer"], record["candidates"]) == (NOT_IN_EVIDENCE, [])


def test_what_the_lm_writes_is_one_of_the_candidates_once() -> None:
    model, examples = reader(), read_examples(6)
    prompt = reader_builder().prompt
    written = model.generate(batch_of(examples, False), 6, prompt.end_id).ids.tolist()
    began = time.monotonic()
    records = answer_together(model, prompt, examples, max_new_tokens=6)
    milliseconds = sum(record["milliseconds"] for record in records)
    assert 0 < milliseconds < 1000 * (time.monotonic() - began) + 1
    for ids, record in zip(written, records, strict=True):
        values = [answer_value(one["label"]) for one in record["candidates"]]
        assert values.count(answer_value(prompt.answer_text(ids))) == 1
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("answers", ["text", "nodes"])
def test_a_checkpoint_answers_the_same(answers: str, tmp_path: Path) -> None:
    model, examples = reader(answers=answers), read_examples(4)
    again = reloaded(model, tmp_path / "saved")
    prompt = reader_builder().prompt
    found = [
        [(r["answer"], r["logprob"]) for r in answer_together(m, prompt, examples, 8)]
        for m in (model, again)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES) - FAMILIES))
def test_other_families_are_refused(architecture: str) -> None:
    layer = ARCHITECTURES[architecture][1]
    lora = replace(LORA, target_modules=(layer,))
    with pytest.raises(ValueError, match=r"model\.layer: must be 0 for a base model of type"):
        tiny_model(architecture, layer=1, scorer=SCORER, lora=lora)


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("mistral", {"sliding_window": 4096}),  # without a type for each layer
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    ],
)
def test_families_with_windows_are_refused(
    architecture: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, layer = ARCHITECTURES[architecture]
    monkeypatch.setitem(ARCHITECTURES, architecture, (known | settings, layer))
    with pytest.raises(ValueError, match=f"type '{architecture}' with sliding windows; a layer"):
        reader(architecture)


def test_a_layer_beyond_the_lm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.layer: 3 given, the LM has 2 layers"):
        reader(layer=3)


def test_it_learns_that_no_passage_has_the_answer() -> None:
    """The gold passages of every other example are left out, and its gold is that none has it."""
    torch.manual_seed(0)
    model = reader()
    examples = [without_answer(e) if i % 2 else e for i, e in enumerate(read_examples(4))]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    batch = batch_of(examples)
    for _ in range(60):
        optimizer.zero_grad()
        (model(batch).total / len(examples)).backward()
        optimizer.step()
    model.eval()
    prompt = reader_builder().prompt
    records = answer_together(model, prompt, examples, max_new_tokens=8)
    assert all(0 <= record["held"] <= 1 for record in records)
    assert min(r["held"] for r in records[::2]) > max(r["held"] for r in records[1::2])
    assert [r["answer"] == NOT_IN_EVIDENCE for r in records] == [False, True] * 2
    assert all(record["hit_at_1"] for record in records)


def without_answer(example: Example) -> Example:
    """The example over passages without its answer, which is now that none has it."""
    conversation, turn = example.conversation, example.conversation.turns[example.turn]
    [answer] = turn.answers
    pool = [e for e in conversation.evidence if answer.label.casefold() not in e.text.casefold()]
    turns = list(conversation.turns)
    turns[example.turn] = replace(turn, answers=(Answer(NOT_IN_EVIDENCE),))
    changed = replace(conversation, turns=tuple(turns), evidence=tuple(pool))
    return reader_builder().conversation(changed, [example.turn])[0]
