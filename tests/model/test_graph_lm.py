"""The language model with its soft prompt: parities, padding, labels, generation, learning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from turngraph.configs.schema import EncoderConfig, LoraConfig, TrainingConfig
from turngraph.data.batches.collate import Batch, collate
from turngraph.data.examples import Example
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.make_model import make_model
from turngraph.tests.tiny import (
    ARCHITECTURES,
    END_ID,
    stir,
    text_ids,
    tiny_base,
    tiny_builder,
    tiny_conversation,
    tiny_examples,
    tiny_model,
    with_edges,
)
from turngraph.training.optimizer import make_optimizer

CLOSED = EncoderConfig(residual_gate=0.0)


def prompt_batch(examples: list[Example], side: Any = "left") -> Batch:
    return collate(examples, side, with_target=False)


def training_batch(examples: list[Example]) -> Batch:
    return collate(examples, "right", with_target=True)


@torch.no_grad()
def last_logits(model: EvidenceModel, examples: list[Example]) -> Tensor:
    return model.logits(prompt_batch(examples))[:, -1]


@torch.no_grad()
def plain_logits(architecture: str, ids: list[int]) -> Tensor:
    """The untouched base model's logits behind a sequence of tokens."""
    return tiny_base(architecture)(input_ids=torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_closed_gates_and_fresh_lora_are_the_base_model_on_the_text(architecture: str) -> None:
    (example,) = tiny_examples(1)
    assert len(example.graph.node_ids) > 10
    found = last_logits(tiny_model(architecture, encoder=CLOSED), [example])[0]
    assert torch.allclose(found, plain_logits(architecture, text_ids(example)), atol=1e-5)


def test_without_lora_nothing_of_the_lm_is_trained() -> None:
    model = tiny_model(lora=None)
    assert set(model.parameter_groups()) == {"encoder", "residual_gate"}
    assert not any(parameter.requires_grad for parameter in model.lm.parameters())


def test_an_empty_graph_is_plain_token_input() -> None:
    conversation = replace(tiny_conversation(0), evidence=())
    example = tiny_builder().conversation(conversation)[1]
    assert len(example.graph.node_ids) == 0
    model = tiny_model()
    expected = plain_logits("llama", [*example.prefix_ids, *example.suffix_ids])
    assert torch.allclose(last_logits(model, [example])[0], expected, atol=1e-5)
    beside = last_logits(model, [*tiny_examples(2), example])[2]
    assert torch.allclose(beside, expected, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_and_batch_size_change_nothing(architecture: str) -> None:
    examples = tiny_examples(4)
    assert len({example.num_tokens for example in examples}) > 2
    model = stir(tiny_model(architecture))
    alone = torch.cat([last_logits(model, [example]) for example in examples])
    assert torch.allclose(last_logits(model, examples), alone, atol=2e-4)
    with torch.no_grad():
        right = model.logits(prompt_batch(examples, "right"))
    ends = [len(text_ids(example)) - 1 for example in examples]
    assert torch.allclose(right[range(4), ends], alone, atol=2e-4)


def test_only_padding_on_the_left_needs_a_mask() -> None:
    examples, model, masks = tiny_examples(3), tiny_model(), []
    inner = model.lm.get_base_model().model  # what makes the attention's mask
    inner.register_forward_pre_hook(
        lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True
    )
    model(training_batch(examples))
    left = prompt_batch(examples, "left")
    with torch.no_grad():
        model.logits(left)
    assert masks[0] is None
    assert torch.equal(masks[1].bool(), left.attention_mask)


@pytest.mark.parametrize("evidence", ["graph", "text"])
def test_the_loss_of_a_batch_is_the_sum_of_its_examples(evidence: str) -> None:
    examples = tiny_examples(4)
    model = stir(tiny_model(evidence=evidence))
    together = model(training_batch(examples))
    alone = [model(training_batch([example])) for example in examples]
    assert together.total.item() == pytest.approx(sum(a.total.item() for a in alone), rel=1e-5)
    assert together.num_tokens == sum(a.num_tokens for a in alone)
    assert together.num_tokens == sum(len(example.target_ids) for example in examples)


def test_logits_are_computed_only_where_there_are_labels() -> None:
    examples, shapes = tiny_examples(4), []
    model, batch = tiny_model(), training_batch(examples)
    head = model.lm.get_output_embeddings()
    head.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape)))
    model(batch)
    model(collate(examples, "right", with_target=True, packed=True))
    columns = (batch.labels != IGNORED_LABEL).any(0).sum().item()
    answer_tokens = sum(len(example.target_ids) for example in examples)
    assert columns < batch.labels.shape[1] / 2
    assert shapes[0] == (4, columns, 480)
    assert shapes[-1] == (1, answer_tokens, 480)  # behind those of the check that packing works


def test_a_batch_without_labels_has_no_loss() -> None:
    batch = collate(tiny_examples(2), "right", with_target=False)
    loss = tiny_model()(batch)
    assert loss.total.item() == 0
    assert loss.num_tokens == 0


@pytest.fixture(scope="module")
def answers() -> tuple[EvidenceModel, list[Example], list[tuple[list[int], float]]]:
    """A model, 16 examples, and what it answers to each of them alone."""
    model = stir(tiny_model())
    examples = tiny_examples(16)
    alone = [model.generate(prompt_batch([example]), 8, END_ID) for example in examples]
    return model, examples, [(a.ids[0].tolist(), a.logprobs.item()) for a in alone]


@pytest.mark.parametrize("size", [3, 16])
def test_batches_of_any_size_generate_the_same(size: int, answers: Any) -> None:
    model, examples, alone = answers
    assert len({tuple(ids) for ids, _ in alone}) > 4
    for start in range(0, len(examples), size):
        batch = examples[start : start + size]
        together = model.generate(prompt_batch(batch), 8, END_ID)
        for row, (ids, logprob) in enumerate(alone[start : start + size]):
            found = together.ids[row].tolist()
            assert found[: len(ids)] == ids
            assert set(found[len(ids) :]) <= {END_ID}
            assert together.logprobs[row].item() == pytest.approx(logprob, abs=1e-3)


def test_generation_is_the_greedy_continuation_of_the_training_pass(answers: Any) -> None:
    model, examples, alone = answers
    for example, (ids, logprob) in zip(examples[:4], alone[:4], strict=True):
        batch = training_batch([replace(example, target_ids=ids)])
        with torch.no_grad():
            logits = model.logits(batch)[0, -len(ids) - 1 : -1]
        assert logits.argmax(-1).tolist() == ids
        assert logprob == pytest.approx(-model(batch).total.item(), abs=1e-3)


def test_generation_settings_of_the_base_model_do_not_matter(answers: Any) -> None:
    _, examples, alone = answers
    other = stir(tiny_model())
    settings = other.lm.generation_config
    settings.do_sample, settings.temperature, settings.top_k = True, 5.0, 50
    settings.repetition_penalty, settings.max_length = 3.0, 20
    found = other.generate(prompt_batch(examples[:2]), 8, END_ID).ids
    assert [row.tolist() for row in found] == [ids for ids, _ in alone[:2]]


def test_an_answer_ends_with_its_turn() -> None:
    model, plan = tiny_model(), [[7, 8], [END_ID, 9], [END_ID]]  # the first row leaves
    steps = iter(plan)

    def write(_: Any, __: Any, output: Tensor) -> Tensor:
        chosen = functional.one_hot(torch.tensor(next(steps)), output.shape[-1])
        return 5.0 * chosen[:, None].expand(-1, output.shape[1], -1).float()

    model.lm.get_output_embeddings().register_forward_hook(write)
    generated = model.generate(prompt_batch(tiny_examples(2)), 4, END_ID)
    assert generated.ids.tolist() == [[7, END_ID, END_ID], [8, 9, END_ID]]
    step = functional.log_softmax(5.0 * functional.one_hot(torch.tensor(0), 480), -1)[0].item()
    assert generated.logprobs.tolist() == pytest.approx([2 * step, 3 * step], abs=1e-4)


def test_the_prompts_end_token_ends_an_answer_even_if_the_base_model_has_another() -> None:
    model = tiny_model()
    model.lm.generation_config.eos_token_id = [77]
    for end in (END_ID, 77):
        steps = iter([[7], [end], [8]])

        def write(_: Any, __: Any, output: Tensor, steps: Any = steps) -> Tensor:
            chosen = functional.one_hot(torch.tensor(next(steps)), output.shape[-1])
            return 5.0 * chosen[:, None].float()

        handle = model.lm.get_output_embeddings().register_forward_hook(write)
        generated = model.generate(prompt_batch(tiny_examples(1)), 3, END_ID)
        handle.remove()
        assert generated.ids.tolist() == [[7, end]]


def test_lora_names_that_do_not_exist_are_an_error_that_lists_the_layers() -> None:
    wrong = LoraConfig(r=4, target_modules=("q_proj", "query"))
    with pytest.raises(ValueError, match=r"target_modules.*'query'.*down_proj.*k_proj.*q_proj"):
        tiny_model(lora=wrong)
    with pytest.raises(ValueError, match="norm"):  # a layer, but not a linear one
        tiny_model(lora=LoraConfig(r=4, target_modules=("norm",)))


def test_lora_may_name_one_layer_in_full() -> None:
    name = "model.layers.1.self_attn.v_proj"
    model = tiny_model(lora=LoraConfig(r=4, target_modules=(name,)))
    trained = {n for n, p in model.lm.named_parameters() if p.requires_grad}
    assert {n.split(".lora_")[0] for n in trained} == {f"base_model.model.{name}"}


def test_parameter_groups_hold_each_trainable_parameter_once() -> None:
    model = tiny_model()
    groups = model.parameter_groups()
    assert set(groups) == {"lora", "encoder", "residual_gate"}
    grouped = [id(parameter) for group in groups.values() for parameter in group]
    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    assert len(grouped) == len(trainable)
    assert set(grouped) == trainable
    assert [id(p) for p in groups["residual_gate"]] == [id(model.encoder.residual_gates)]


def test_low_precision_is_for_what_is_frozen() -> None:
    base = tiny_base().bfloat16()
    config = replace(tiny_model().config, dtype="bfloat16")
    model = make_model(config, base)
    dtypes = {p.requires_grad: set() for p in model.parameters()}
    for parameter in model.parameters():
        dtypes[parameter.requires_grad].add(parameter.dtype)
    assert dtypes == {True: {torch.float32}, False: {torch.bfloat16}}

    optimizer = make_optimizer(model, TrainingConfig())
    before = [p.detach().clone() for p in model.parameters() if p.requires_grad]
    assert model.logits(training_batch(tiny_examples(1))).dtype == torch.bfloat16
    model(training_batch(tiny_examples(2))).total.backward()
    optimizer.step()
    moments = [state["exp_avg"].dtype for state in optimizer.state.values()]
    assert len(moments) == len(before)
    assert set(moments) == {torch.float32}
    after = [p for p in model.parameters() if p.requires_grad]
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert {p.dtype for p in after} == {torch.float32}


def test_low_precision_is_close_to_full_precision() -> None:
    examples = tiny_examples(2)
    exact = tiny_model()
    rounded = make_model(replace(exact.config, dtype="bfloat16"), tiny_base().bfloat16()).eval()
    rounded.encoder.load_state_dict(exact.encoder.state_dict())
    expected = exact(training_batch(examples)).total.item()
    assert rounded(training_batch(examples)).total.item() == pytest.approx(expected, rel=0.05)


ALL_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def edge_puzzle(num_nodes: int = 12) -> list[Example]:
    """Four examples of one text; an edge to the last node tells the answer."""
    (whole,) = tiny_examples(1)
    graph = ChainGraph(whole.graph.node_ids[:num_nodes], whole.graph.edge_index, 0)
    short = replace(
        whole, prefix_ids=whole.prefix_ids[:4], graph=graph, suffix_ids=whole.suffix_ids[-4:]
    )
    chain, last = [(i, i + 1) for i in range(num_nodes - 1)], num_nodes - 1
    return [
        replace(
            with_edges(short, [*chain, (1 + 2 * number, last), (last, 1 + 2 * number)]),
            target_ids=[100 + number, END_ID],
        )
        for number in range(4)
    ]


def test_the_graph_is_used() -> None:
    """Same text, other edges, other answer: learned on one small batch."""
    puzzle = edge_puzzle()
    assert len({tuple(text_ids(example)) for example in puzzle}) == 1
    model = tiny_model(
        lora=LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=ALL_LAYERS),
        encoder=EncoderConfig(dropout=0.0, residual_gate=1.0),
    )
    rates = TrainingConfig(learning_rate=3e-3, encoder_learning_rate=3e-3)
    optimizer = make_optimizer(model, rates)
    wanted, answers = [example.target_ids for example in puzzle], []
    for step in range(200):
        optimizer.zero_grad()
        loss = model(training_batch(puzzle))
        (loss.total / loss.num_tokens).backward()
        optimizer.step()
        if step % 20 == 19:
            answers = model.generate(prompt_batch(puzzle), 2, END_ID).ids.tolist()
        if answers == wanted:
            break
    assert answers == wanted
