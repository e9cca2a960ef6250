"""A language model whose decoding is constrained: every reply parses, whatever the weights."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.local_lm import LmExtractor
from turngraph.data.memory_graph.extract.replies import (
    ENTITIES,
    EXTRACTION,
    misfit,
    replaced_schema,
)
from turngraph.data.memory_graph.memory_types import Episode, Fact, Triplet, Update
from turngraph.model import constrained
from turngraph.model.constrained import SLACK, ConstrainedLM, Constraint, smallest_value
from turngraph.tests.tiny import save_tiny, tiny_tokenizer

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPTS = (
    "Peru, capital, Lima",
    "",
    'a "quote" \\ {"theses": [',
    "漢字 é \x00\n" * 5,
    "one two " * 40,
)
SMALL = {
    "type": "object",
    "properties": {
        "texts": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 6}},
        "so": {"type": "boolean"},
        "year": {"type": "string", "pattern": r"^(\d{4})?$"},
        "numbers": {"type": "array", "maxItems": 2, "items": {"type": "integer", "enum": [7, 42]}},
    },
    "required": ["texts", "so", "year", "numbers"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Folders of random tiny language models."""
    folder = tmp_path_factory.mktemp("models")
    return [save_tiny(folder / str(seed), seed) for seed in range(6)]


@pytest.mark.parametrize("seed", range(2))
def test_every_reply_of_a_random_lm_parses(seed: int, models: list[str]) -> None:
    lm = ConstrainedLM(models[seed], batch_size=3, max_new_tokens=240 + 20 * seed)
    for schema in (EXTRACTION, (ENTITIES, replaced_schema(12))[seed]):
        for text, _ in lm.generate(PROMPTS, schema):
            assert misfit(json.loads(text), schema) is None
            assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("seed", range(4))
def test_lengths_are_kept_and_short_replies_end_by_themselves(seed: int, models: list[str]) -> None:
    for text, whole in ConstrainedLM(models[seed], max_new_tokens=200).generate(PROMPTS, SMALL):
        value = json.loads(text)
        assert whole
        assert len(value["texts"]) <= 3
        assert all(len(part) <= 6 for part in value["texts"])
        assert value["year"] == "" or (len(value["year"]) == 4 and value["year"].isdecimal())
        assert set(value["numbers"]) <= {7, 42}


def test_a_reply_without_end_is_closed_and_told_apart(models: list[str]) -> None:
    endless = {
        "type": "object",
        "properties": {"texts": {"type": "array", "items": {"type": "string"}}},
        "required": ["texts"],
        "additionalProperties": False,
    }
    found = []
    for model in models:
        found += ConstrainedLM(model, max_new_tokens=90).generate(PROMPTS, endless)
        if not all(whole for _, whole in found):
            break
    assert not all(whole for _, whole in found)
    assert all(list(json.loads(text)) == ["texts"] for text, _ in found)


def test_every_place_to_close_a_reply_from_leads_to_its_end(models: list[str]) -> None:
    lm = ConstrainedLM(models[2])
    for lm.max_new_tokens in range(97, 110):
        for text, _ in lm.generate(PROMPTS[:2], SMALL):
            assert misfit(json.loads(text), SMALL) is None


def test_batches_change_nothing_and_the_order_is_kept(models: list[str]) -> None:
    lm = ConstrainedLM(models[1], max_new_tokens=120)
    together = lm.generate(PROMPTS, ENTITIES)
    lm.batch_size = 1
    assert lm.generate(PROMPTS, ENTITIES) == together
    assert len(set(together)) > 1
    assert lm.generate([], ENTITIES) == []


def test_replies_are_greedy_whatever_the_model_suggests(models: list[str]) -> None:
    lm = ConstrainedLM(models[1], max_new_tokens=120)
    expected = lm.generate(PROMPTS[:2], ENTITIES)
    suggested = {"do_sample": True, "temperature": 9.0, "num_beams": 2, "repetition_penalty": 9.0}
    lm.lm.generation_config.update(**suggested)
    assert lm.generate(PROMPTS[:2], ENTITIES) == expected


def test_a_tokenizer_needs_neither_template_nor_padding(tmp_path: Path) -> None:
    folder, tokenizer = save_tiny(tmp_path), tiny_tokenizer()
    (tmp_path / "chat_template.jinja").unlink()
    tokenizer.chat_template = tokenizer.pad_token = None
    tokenizer.bos_token = "<|im_start|>"
    tokenizer.save_pretrained(folder)
    lm = ConstrainedLM(folder, max_new_tokens=120)
    assert lm._chat("Peru") == "<|im_start|>Peru\n"
    lm.tokenizer.bos_token = None
    assert lm._chat("Peru") == "Peru\n"
    for text, _ in lm.generate(PROMPTS[:2], SMALL):
        assert misfit(json.loads(text), SMALL) is None


@pytest.mark.parametrize(
    ("dtype", "device", "expected"),
    [(None, "cpu", "float32"), (None, "cuda", "bfloat16"), ("bfloat16", "cpu", "bfloat16")],
)
def test_weights_have_the_type_that_suits_the_device(
    dtype: str | None, device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = MagicMock(side_effect=UserError("as far as this"))
    monkeypatch.setattr(constrained, "load_base_model", load)
    with pytest.raises(UserError, match="as far as this"):
        ConstrainedLM("tiny", dtype, device)
    load.assert_called_once_with("tiny", expected)


def test_a_bar_is_shown_for_several_batches(
    models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, shown = ConstrainedLM(models[0], batch_size=5), list[bool]()
    monkeypatch.setattr(
        constrained, "track", lambda batches, *_, **given: shown.append(given["shown"]) or batches
    )
    monkeypatch.setattr(lm, "_batch", lambda texts, *_: [("", True)] * len(texts))
    for num in (5, 6):
        assert lm.generate(["a"] * num, SMALL) == [("", True)] * num
    assert shown == [False, True]


def test_what_the_matcher_or_the_tokenizer_cannot_do_is_told(
    models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher: Any = MagicMock()
    matcher.is_stopped.return_value, matcher.is_error.return_value = False, True
    matcher.get_error.return_value = "too large"
    tokens: Any = SimpleNamespace(greedy_tokenize=lambda text: [0])
    with pytest.raises(UserError, match="JSON schema: too large"):
        Constraint([matcher], tokens, 1, 9)(torch.tensor([[3, 4]]), torch.zeros(1, 5))
    matcher.consume_token.assert_called_once_with(4)
    monkeypatch.setattr(constrained.AutoTokenizer, "from_pretrained", lambda *_, **__: object())
    with pytest.raises(UserError, match=f"model '{models[0]}': object is not a fast tokenizer"):
        ConstrainedLM(models[0])


def test_what_cannot_be_generated(models: list[str]) -> None:
    lm = ConstrainedLM(models[0], max_new_tokens=57 + SLACK)
    lm.generate(["a"], SMALL)  # whose smallest value has 57 characters
    lm.max_new_tokens -= 1
    with pytest.raises(ValueError, match=r"max_new_tokens: 88 given, 1 too few"):
        lm.generate(["a"], SMALL)
    lm.max_new_tokens = 100
    with pytest.raises(ValueError, match=r"max_new_tokens: 100 given, .* too few"):
        lm.generate(["a"], EXTRACTION)
    with pytest.raises(ValueError, match="the model has 4096"):
        lm.generate(["a", "word " * 4000], ENTITIES)
    lm._check_lengths([5, 3996])  # with the 100 tokens of the reply as long as may be
    with pytest.raises(ValueError, match="take up to 4097 tokens, the model has 4096"):
        lm._check_lengths([5, 3997])
    with pytest.raises(ValueError, match="JSON schema"):
        lm.generate(["a"], {"type": "string", "pattern": "("})
    with pytest.raises(ValueError, match="device 'tpu'"):
        ConstrainedLM(models[0], device="tpu")


def test_smallest_value() -> None:
    assert smallest_value(SMALL) == {"texts": [""], "so": False, "year": "", "numbers": [42]}
    assert smallest_value({"type": "string", "enum": ["no", "maybe", "yes"]}) == "maybe"


@pytest.mark.slow  # 300 tokens of a real model
def test_smollm2_extracts() -> None:
    """A real vocabulary and template; so small a model copies the example, which is noticed."""
    lm = LmExtractor(ConstrainedLM(SMOLLM2, max_new_tokens=288).generate)
    episode = Episode("Marta lives in Lisbon.", "2020-01-05")
    [said] = lm.extract([episode])
    assert "Marta" in " ".join(thesis.text for thesis in said.theses)
    assert "Eskil" not in str(said)
    assert set(lm.entities("Where does Marta live?")) <= {"Marta"}
    known = (Fact(3, "simple", "Marta lives in Porto"), Fact(5, "simple", "Marta likes tea"))
    [replaced] = lm.replaced([Update(Triplet("Marta", "lives in", "Lisbon"), episode, known)])
    assert set(replaced) <= {3, 5}
