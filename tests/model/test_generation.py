"""The decoding loop beside transformers' own: caches, rows that leave, tokens as they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel

import turngraph.model.generation
from turngraph.data.batches.collate import collate
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.generation import (
    IGNORED_LABEL,
    Past,
    PreallocatedLayer,
    answer_logprobs,
    common_start,
    greedy,
    key_value_cache,
    likeliest,
    rows_of,
)
from turngraph.tests.tiny import (
    ARCHITECTURES,
    END_ID,
    stir,
    text_ids,
    tiny_base,
    tiny_examples,
    tiny_model,
)

NEW = 12
ENDS = (END_ID, *range(2, 160, 2))
"""Many tokens end an answer, so that rows leave at different steps."""
COMMON = {
    "vocab_size": 480,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": END_ID,
}
OTHERS: dict[str, dict[str, Any]] = {
    "sliding": {"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 5},
    "hybrid": {
        "model_type": "lfm2",
        "num_hidden_layers": 2,
        "layer_types": ["conv", "full_attention"],
        "block_ff_dim": 64,
    },
}
BOTH: dict[str, Any] = {
    "model_type": "falcon_h1",
    "num_hidden_layers": 2,
    "mamba_d_ssm": 32,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
"""Keys and values and a state in every layer; transformers does not generate from embeddings."""


def other_base(name: str, attention: str = "sdpa") -> PreTrainedModel:
    settings = COMMON | (OTHERS | {"both": BOTH})[name]
    config = AutoConfig.for_model(**settings, attn_implementation=attention)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def prompts(lengths: tuple[int, ...] = (9, 30, 14, 22, 30, 3)) -> tuple[Tensor, Tensor]:
    """Random ids padded on the left, and where they are none."""
    longest = max(lengths)
    ids = torch.randint(3, 480, (len(lengths), longest), generator=torch.manual_seed(1))
    mask = torch.arange(longest)[None] >= longest - torch.tensor(lengths)[:, None]
    return ids * mask, mask


def ours(lm: PreTrainedModel, ids: Tensor, mask: Tensor, **settings: Any) -> Any:
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    embeddings = lm.get_input_embeddings()(ids)
    return greedy(lm, embeddings, mask, positions, NEW, torch.tensor(ENDS), **settings)


def theirs(lm: PreTrainedModel, ids: Tensor, mask: Tensor) -> Any:
    return lm.generate(
        inputs_embeds=lm.get_input_embeddings()(ids),
        attention_mask=mask.long(),
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=list(ENDS),
        pad_token_id=END_ID,
        return_dict_in_generate=True,
        output_logits=True,
    )


def bases() -> list[Any]:
    known = [pytest.param(tiny_base(name), id=name) for name in ARCHITECTURES]
    known += [pytest.param(other_base(name), id=name) for name in OTHERS]
    return [*known, pytest.param(other_base("sliding", "eager"), id="sliding-eager")]


@pytest.mark.parametrize("lm", bases())
def test_the_ids_are_those_of_transformers(lm: PreTrainedModel) -> None:
    for batch in (prompts(), prompts((7,)), prompts((8, 8, 8))):
        found, wanted = ours(lm, *batch), theirs(lm, *batch)
        assert torch.equal(found.ids, wanted.sequences)
        logits = torch.stack([step.float().log_softmax(-1) for step in wanted.logits], 1)
        chosen = logits.gather(2, found.ids[:, :, None]).squeeze(2)
        ended = torch.isin(found.ids, torch.tensor(ENDS)).long()
        counted = (ended.cumsum(1) - ended) == 0
        assert torch.allclose(found.logprobs, (chosen * counted).sum(1), atol=1e-3)


def test_finished_rows_leave_the_batch() -> None:
    lm, sizes = tiny_base(), []
    lm.register_forward_hook(lambda *args: sizes.append(len(args[2].logits)))
    ids = ours(lm, *prompts()).ids
    ended = torch.isin(ids, torch.tensor(ENDS)).long().cumsum(1).clamp(max=1)
    assert sizes == [len(ids), *(len(ids) - ended.sum(0)).tolist()][: ids.shape[1]]
    assert len(set(sizes)) > 2


def test_tokens_are_shown_as_they_come() -> None:
    lm, shown = tiny_base(), []
    ids = ours(lm, *prompts(), on_token=lambda new: shown.append(new.clone())).ids
    assert torch.equal(torch.stack(shown, 1), ids)
    model, shown = stir(tiny_model()), []
    batch = collate(tiny_examples(1), "left", with_target=False)
    ids = model.generate(batch, 6, END_ID, lambda new: shown.append(new.item())).ids
    assert shown == ids[0].tolist()


@pytest.mark.parametrize(("evidence", "most"), [("graph", 8), ("text", 1)])
def test_what_two_prompts_have_in_common_is_read_once(evidence: Any, most: int) -> None:
    model, past, read = stir(tiny_model(evidence=evidence)), Past(), []
    examples, firsts = tiny_examples(2), []
    similar = replace(examples[0], suffix_ids=[*examples[0].suffix_ids[:-4], 7, 8, 9])
    layer = model.lm.get_base_model().model.layers[0]
    layer.register_forward_hook(lambda *args: read.append(args[1][0].shape[1]))
    for example in (examples[0], similar, examples[1], examples[0], examples[0]):
        batch = collate([example], "left", with_target=False)
        alone = model.generate(batch, most, END_ID)
        start = len(read)
        found = model.generate(batch, most, END_ID, past=past)
        assert torch.equal(found.ids, alone.ids)
        assert torch.allclose(found.logprobs, alone.logprobs, atol=1e-4)
        firsts.append(read[start])
    length = len(text_ids(examples[0]))
    assert firsts[0] == length
    assert firsts[1] == 3  # behind what was changed
    assert firsts[3] < length  # the instruction at least
    assert firsts[4] == 1  # the same prompt again: its last position


def test_an_lm_with_a_state_reads_every_prompt_whole() -> None:
    lm, past, (ids, mask) = other_base("hybrid"), Past(), prompts((12,))
    alone = ours(lm, ids, mask).ids
    for _ in range(2):
        assert torch.equal(ours(lm, ids, mask, past=past).ids, alone)
        assert past.num_tokens == 0


def test_a_cache_of_which_a_layer_holds_nothing_is_not_kept() -> None:
    """As where a layer reads the keys and values of another one."""
    cache, past, none = key_value_cache(tiny_base(), 9), Past(), torch.tensor([], dtype=torch.long)
    states, prompt = torch.ones(1, 1, 3, 16), torch.ones(1, 3, 32)
    first, second = cache.layers
    first.update(states, states)
    second.keep(none, none, 1)
    past.update(cache, prompt)
    assert (past.num_tokens, past.num_cached(prompt)) == (0, 0)
    second.update(states, states)
    past.update(cache, prompt)
    assert (past.num_tokens, past.num_cached(prompt)) == (3, 2)
    past.clear()
    assert (past.num_tokens, past.num_cached(prompt)) == (0, 0)


def test_only_equal_rows_from_the_start_are_common() -> None:
    one = torch.arange(12.0).reshape(4, 3)
    other = one.clone()
    other[2, 1] += 1e-6
    assert common_start(one, one[:3]) == 3
    assert common_start(one, other) == 2


def proposals(counts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Random answers of one to five tokens and one of six, padded; how many each prompt has."""
    generator = torch.manual_seed(2)
    lengths = torch.randint(1, 6, (sum(counts),), generator=generator)
    lengths[0] = 6
    ids = torch.randint(3, 480, (sum(counts), 6), generator=generator)
    ids[torch.arange(6)[None] >= lengths[:, None]] = IGNORED_LABEL
    return ids, torch.tensor(counts)


@pytest.mark.parametrize("lm", [*bases(), pytest.param(other_base("both"), id="both")])
@pytest.mark.parametrize("counts", [(4, 0, 1, 3, 30, 2), (1, 1, 1, 1, 1, 1)])
def test_given_answers_are_as_likely_as_when_read_alone(
    lm: PreTrainedModel, counts: tuple[int, ...]
) -> None:
    ids, mask = prompts()
    answers, num = proposals(counts)
    embeddings = lm.get_input_embeddings()(ids)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    found = answer_logprobs(lm, embeddings, mask, positions, answers, num)
    owners = torch.repeat_interleave(num).tolist()
    for answer, owner, value in zip(answers, owners, found.tolist(), strict=True):
        prompt, answer = ids[owner][mask[owner]], answer[answer != IGNORED_LABEL]
        with torch.no_grad():
            logits = lm(input_ids=torch.cat([prompt, answer])[None]).logits[0]
        steps = logits[len(prompt) - 1 : -1].log_softmax(-1)
        assert value == pytest.approx(float(steps.gather(1, answer[:, None]).sum()), abs=1e-3)


@pytest.mark.parametrize(("tokens", "most"), [(2**14, 16), (5 * 30, 5), (1, 2)])
def test_few_rows_of_long_prompts_are_copied_at_a_time(
    tokens: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turngraph.model.generation, "TOKENS_AT_ONCE", tokens)
    lm, (ids, mask), sizes = tiny_base(), prompts((9, 30)), list[int]()
    lm.register_forward_hook(lambda *args: sizes.append(len(args[2].logits)))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    embeddings = lm.get_input_embeddings()(ids)
    answer_logprobs(lm, embeddings, mask, positions, *proposals((20, 20)))
    assert max(sizes[1:]) == most


def test_answers_of_one_token_are_read_off_the_prompts() -> None:
    lm, (ids, mask), sizes = tiny_base(), prompts((9, 30)), list[torch.Size]()
    lm.register_forward_hook(lambda *args: sizes.append(args[2].logits.shape))
    embeddings, positions = lm.get_input_embeddings()(ids), (mask.cumsum(1) - 1).clamp(min=0)
    one_token = torch.tensor([[7], [9], [7]])
    answer_logprobs(lm, embeddings, mask, positions, one_token, torch.tensor([2, 1]))
    assert sizes == [(2, 1, 480)]


def test_keys_and_values_that_are_never_written_in_place_are_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turngraph.model.generation, "deepcopy", copied := MagicMock())
    lm, cache = tiny_base(), DynamicCache()
    lm(input_ids=torch.tensor([[3, 4], [5, 6]]), past_key_values=cache)
    chosen = rows_of(cache, torch.tensor([1, 1, 0]))
    assert not copied.called
    for known, rows in zip(cache.layers, chosen.layers, strict=True):
        assert torch.equal(rows.keys, known.keys[[1, 1, 0]])
        assert len(known.values) == 2


@pytest.mark.parametrize("evidence", ["graph", "text"])
def test_what_is_written_is_as_likely_as_when_it_is_proposed(evidence: Any) -> None:
    model = stir(tiny_model(evidence=evidence))
    batch = collate(tiny_examples(3), "left", with_target=False)
    written = model.generate(batch, NEW, END_ID)
    ended = (written.ids == END_ID).long()
    answers = written.ids.masked_fill(ended.cumsum(1) - ended > 0, IGNORED_LABEL)
    found = model.answer_logprobs(batch, answers, torch.ones(3, dtype=torch.long))
    assert torch.allclose(found, written.logprobs, atol=1e-3)


def test_which_cache() -> None:
    assert isinstance(key_value_cache(other_base("hybrid"), 9), DynamicCache)
    for lm in (tiny_base(), other_base("sliding"), stir(tiny_model()).lm):
        layers = key_value_cache(lm, 9).layers
        assert [type(layer) for layer in layers] == [PreallocatedLayer, PreallocatedLayer]
    stateful = tiny_base()
    stateful._is_stateful = True
    assert isinstance(key_value_cache(stateful, 9), DynamicCache)


def test_bfloat16_decodes_too() -> None:
    model = tiny_model(dtype="bfloat16", lora=None)
    model.lm.to(torch.bfloat16)
    batch = collate(tiny_examples(3), "left", with_target=False)
    generated = model.generate(batch, 6, END_ID)
    assert generated.logprobs.dtype == torch.float32
    assert isinstance(model, EvidenceModel)
    assert (generated.logprobs < 0).all()


def test_the_lead_of_a_token_is_that_over_the_next() -> None:
    chosen, logprob, lead = likeliest(torch.tensor([[1.0, 4.0, 3.5], [0.0, -2.0, -9.0]]))
    assert chosen.tolist() == [1, 0]
    assert lead.tolist() == [0.5, 2.0]
    assert torch.allclose(logprob[1], torch.tensor([0.0, -2.0, -9.0]).log_softmax(0)[0])
