"""Inference rows of ``gpu.py``: prefill and decode beside the ceilings, questions in batches."""

from __future__ import annotations

from typing import Any

import torch

from turngraph.benchmarks.speed.gpu_bench import CONVMIX, Bench, Values, clock
from turngraph.configs.schema import Config
from turngraph.data.batches.collate import Batch, collate
from turngraph.inference.answer_batches import answer_together
from turngraph.model.graph_lm import GraphLM
from turngraph.training.operations import lm_shape

AT_ONCE, NEW_TOKENS, NUM_QUESTIONS, ONE_BY_ONE = 64, 32, 256, 8


def _model(bench: Bench) -> tuple[GraphLM, Config]:
    config = bench.config(CONVMIX)
    model = bench.model(config).eval()
    assert isinstance(model, GraphLM)
    model.causal_lm.generation_config.eos_token_id = None  # answers of one length
    return model, config


def decode(bench: Bench) -> Values:
    """Measure reading 64 prompts, and each further token, beside the two ceilings."""
    model, _ = _model(bench)
    count, new = (2, 3) if bench.tiny else (AT_ONCE, NEW_TOKENS)
    examples = bench.examples(CONVMIX, count)
    batch = collate(examples, "left", with_target=False).to(bench.device)
    prefill = bench.repeat(lambda: _generate(model, batch, 1), 3)
    whole = bench.repeat(lambda: _generate(model, batch, 1 + new), 3)
    each = max((whole - prefill) / new, 1e-9)
    lengths = [e.num_tokens - len(e.target_ids) for e in examples]
    values: Values = {
        "prefill_tokens_s": sum(lengths) / prefill,
        "decode_tokens_s": len(examples) / each,
        "milliseconds_token": 1000 * each,
    }
    if ceiling := bench.ceiling("matmul_tflops"):
        values["prefill_share"] = prefill_flops(model, lengths) / prefill / 1e12 / ceiling
    if ceiling := bench.ceiling("copy_gb_s"):
        values["decode_share"] = decode_bytes(model, lengths, new) / each / 1e9 / ceiling
    return values | bench.memory()


def _generate(model: GraphLM, batch: Batch, new: int) -> None:
    model.generate(batch, new, end_id=-1)  # no token ends an answer


def prefill_flops(model: GraphLM, lengths: list[int]) -> float:
    """Return the operations of reading prompts: matrices of all tokens, half of the pairs."""
    shape = lm_shape(model.causal_lm)
    pairs = sum(length**2 for length in lengths) / 2
    of_tokens = 2 * (shape.body + shape.lora) * sum(lengths)
    return of_tokens + 4 * shape.num_layers * shape.width * pairs + 2 * shape.head * len(lengths)


def decode_bytes(model: GraphLM, lengths: list[int], new: int) -> float:
    """Return the bytes that one step reads: weights once, keys and values of every token."""
    config: Any = model.causal_lm.config.get_text_config()
    kind = next(p for p in model.causal_lm.parameters() if not p.requires_grad)
    shape = lm_shape(model.causal_lm)
    width: int = 2 * config.num_key_value_heads * shape.width // config.num_attention_heads
    tokens = sum(lengths) + len(lengths) * new / 2
    weights = (shape.body + shape.head) * kind.element_size() + 4 * shape.lora
    return weights + tokens * shape.num_layers * width * kind.element_size()


def questions(bench: Bench) -> Values:
    """Answer 256 questions in batches, and some of them one by one by ``generate``."""
    model, config = _model(bench)
    count, new = (3, 3) if bench.tiny else (NUM_QUESTIONS, NEW_TOKENS)
    examples = bench.examples(CONVMIX, count)
    prompt = bench.builder(config).prompt
    most = None if bench.tiny else 2**17
    few = examples[: min(len(examples), 16)]
    answer_together(model, prompt, few, max_new_tokens=new, batch_tokens=most)
    began = clock(bench.device)
    answer_together(model, prompt, examples, max_new_tokens=new, batch_tokens=most)
    seconds = clock(bench.device) - began
    alone = examples[: min(len(examples), ONE_BY_ONE)]
    began = clock(bench.device)
    for example in alone:
        _generate_plainly(model, collate([example], "left", False).to(bench.device), new)
    each = (clock(bench.device) - began) / len(alone)
    rates = {"questions_s": len(examples) / seconds, "one_by_one_s": 1 / each}
    return rates | {"ratio": rates["questions_s"] * each} | bench.memory()


@torch.no_grad()
def _generate_plainly(model: GraphLM, batch: Batch, new: int) -> None:
    """Generate by transformers' own method."""
    assert batch.attention_mask is not None, "packed"
    same = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
    with model._autocast():
        embedded = model.input_embeddings(batch)
        lm: Any = model.causal_lm
        lm.generate(inputs_embeds=embedded, attention_mask=batch.attention_mask.long(), **same)
