"""Checks a loaded base model: it must read prompts in all ways that training and answers need.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import embedding_table
from turngraph.model.generation import Rows, answer_logprobs, last_column

PROBE_TOKENS = 12
"""Length of the longer prompt."""
PADDING = 7
"""Number of padding tokens before the shorter prompt."""
MIN_LAYERS = 2
"""Number of layers that are run; more if a type of layer first occurs later."""
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.03}
"""Weights' type -> largest relative change of logits that counts as rounding error."""
PLAIN_ATTENTION = ("sdpa", "eager")
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of a model class that is called in a way that it does not support."""


@torch.no_grad()
def check_base_model(lm: PreTrainedModel) -> None:
    """Check that a causal LM computes the same logits in every way in which it will be called.

    Only the first layers run, on a few random tokens, so the check is quick for a model of any
    size. The logits must be the same for embeddings as for token ids, with padding as without, and
    with a cache as without; a later token must not change the logits before it.

    Args:
        lm: the base model, in evaluation mode, without adapters, with its weights.

    Raises:
        UserError: the model fails one of these; the message says which.
    """
    vocabulary = embedding_table(lm).num_embeddings
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (2, PROBE_TOKENS), generator=generator).to(lm.device)
    checks: dict[str, Callable[[PreTrainedModel, Tensor], Tensor]] = {
        "embeddings in place of token ids give other logits": _embeddings,
        "a later token changes the logits before it": _later_token,
        "padding changes the logits of a prompt": _padding,
        "a cache changes the logits": _cache,
        "a cache changes the log-probabilities of given answers": _given_answers,
    }
    tolerance = TOLERANCES.get(lm.dtype, TOLERANCES[torch.bfloat16])
    with _first_layers(lm), _plain_attention(lm), torch.compiler.set_stance("force_eager"):
        for failure, check in checks.items():
            try:
                change = float(check(lm, ids))
            except torch.OutOfMemoryError:
                raise
            except _FAILURES as error:
                reason = str(error).strip().partition("\n")[0]
                raise _refused(
                    lm, f"{type(error).__name__}: {reason}, when checked whether {failure}"
                ) from error
            if not change <= tolerance:  # nan is refused as well
                raise _refused(lm, f"{failure} (by {change:.1%})")


def _refused(lm: PreTrainedModel, reason: str) -> UserError:
    return UserError(
        f"config field model.base_model: models of type {lm.config.model_type} cannot be used: "
        f"{reason}"
    )


@contextmanager
def _first_layers(lm: PreTrainedModel) -> Iterator[None]:
    """Cut a model to its first layers, at least one of each type, inside the context."""
    decoder, config = lm.get_decoder(), lm.config.get_text_config()
    kinds = list(getattr(config, "layer_types", None) or [])
    num = max([MIN_LAYERS, *(kinds.index(kind) + 1 for kind in set(kinds))])
    whole = config.num_hidden_layers
    stacks = [
        (module, name, stack)
        for module in decoder.modules()
        for name, stack in module.named_children()
        if isinstance(stack, nn.ModuleList) and len(stack) == whole > num
    ]
    if len(stacks) != 1:  # the stack of layers is not found: run all of them
        yield
        return
    ((module, name, stack),) = stacks
    setattr(module, name, stack[:num])
    try:
        yield
    finally:
        setattr(module, name, stack)


@contextmanager
def _plain_attention(lm: PreTrainedModel) -> Iterator[None]:
    """Use eager attention in place of one that needs a GPU or is compiled."""
    implementation = lm.config._attn_implementation
    if implementation in PLAIN_ATTENTION:
        yield
        return
    lm.set_attn_implementation("eager")
    try:
        yield
    finally:
        lm.set_attn_implementation(implementation)


def _alone(lm: PreTrainedModel, ids: Tensor, last: int) -> Tensor:
    """Compute logits at the last tokens of rows without padding or cache, [B, last, V]."""
    return _last_logits(lm, ids, embedding_table(lm)(ids), last)


def _last_logits(lm: PreTrainedModel, ids: Tensor, embeddings: Tensor, last: int) -> Tensor:
    num = ids.shape[1]
    logits: Tensor = lm(
        inputs_embeds=embeddings,
        position_ids=torch.arange(num, device=ids.device).expand(ids.shape),
        use_cache=False,
        logits_to_keep=torch.arange(num - last, num, device=ids.device),
    ).logits
    return logits[:, -last:].float()


def _change(one: Tensor, other: Tensor) -> Tensor:
    """Return the largest relative change of a token's logits; a shift of all of them is ignored."""
    one, other = (logits - logits.mean(-1, keepdim=True) for logits in (one, other))
    largest: Tensor = ((one - other).norm(dim=-1) / other.norm(dim=-1)).max()
    return largest


def _embeddings(lm: PreTrainedModel, ids: Tensor) -> Tensor:
    positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    expected = lm(input_ids=ids, position_ids=positions, use_cache=False).logits[:, -1].float()
    embeddings = embedding_table(lm)(ids)
    for _ in range(2):  # some models scale them in place
        logits = _last_logits(lm, ids, embeddings, 1)[:, -1]
    return _change(logits, expected)


def _later_token(lm: PreTrainedModel, ids: Tensor) -> Tensor:
    """Compare the logits at equal beginnings of rows whose ends differ."""
    half = ids.shape[1] // 2
    rows = torch.cat([ids[:1].expand(2, -1)[:, :half], ids[:, half:]], 1)
    first, second = _alone(lm, rows, half + 1)[:, 0]
    return _change(second, first)


def _prompts(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return prompts of two lengths, padded on the left, with mask and positions."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :PADDING] = False
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    return torch.where(mask, ids, 0), mask, positions


def _padding(lm: PreTrainedModel, ids: Tensor) -> Tensor:
    padded, mask, positions = _prompts(ids)
    logits = (
        lm(
            inputs_embeds=embedding_table(lm)(padded),
            attention_mask=mask.long(),
            position_ids=positions,
            use_cache=False,
            logits_to_keep=last_column(ids.device),
        )
        .logits[:, -1]
        .float()
    )
    alone = torch.cat([_alone(lm, ids[:1], 1), _alone(lm, ids[1:, PADDING:], 1)])[:, 0]
    return _change(logits, alone)


def _cache(lm: PreTrainedModel, ids: Tensor) -> Tensor:
    """Decode given tokens as answers are decoded; the first row ends before the second."""
    padded, mask, positions = _prompts(ids)
    steps = ids.flip(0)[:, :3]
    whole = torch.cat([ids, steps], 1)
    expected = _alone(lm, whole[:1], 4)[0], _alone(lm, whole[1:, PADDING:], 4)[0]
    rows, changes = Rows(lm, mask, positions, steps.shape[1]), list[Tensor]()
    inputs = {"inputs_embeds": embedding_table(lm)(padded)}
    for step in range(4):
        logits = rows.logits(inputs)
        indices = rows.indices.tolist()
        changes.append(_change(logits, torch.stack([expected[row][step] for row in indices])))
        live = torch.tensor([row == 1 or step < 1 for row in indices], device=ids.device)
        live_rows = [row for row, lives in zip(indices, live.tolist(), strict=True) if lives]
        rows.keep(live)
        if step < 3:
            inputs = {"input_ids": steps[live_rows, step : step + 1]}
    return torch.stack(changes).max()


def _given_answers(lm: PreTrainedModel, ids: Tensor) -> Tensor:
    padded, mask, positions = _prompts(ids)
    answers = ids.flip(0)[:, :3].repeat_interleave(2, 0)  # two of each prompt
    answers[1, 2], answers[3, 1:] = -100, -100
    logprobs = answer_logprobs(
        lm,
        embedding_table(lm)(padded),
        mask,
        positions,
        answers,
        torch.tensor([2, 2], device=ids.device),
    )
    expected = []
    for row, answer in enumerate(answers):
        prompt = ids[0] if row < 2 else ids[1, PADDING:]
        answer = answer[answer >= 0]
        logits = _alone(lm, torch.cat([prompt, answer])[None], len(answer) + 1)[0, :-1]
        expected.append(logits.log_softmax(-1).gather(1, answer[:, None]).sum())
    return ((logprobs - torch.stack(expected)) / torch.stack(expected)).abs().max()
