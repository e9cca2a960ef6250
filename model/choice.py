"""Computes how likely an LM and a scorer of nodes are to choose each proposed entity, in one pass.

The labels of the proposals stand behind the prompt in the same row. Each one attends to the prompt
and to itself, as the branches of a token tree do (SpecInfer, Miao et al., 2024), and its positions
continue from the prompt's end, so that each has the log-probability that it has alone.

Shapes: B examples, T columns of the padded batch, S columns of proposals, K proposals of an
example, A tokens of a label, C candidates, D LM width, V vocabulary, P kept positions, Q tokens
whose log-probability is computed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turngraph.model.base_model import embedding_table
from turngraph.model.generation import IGNORED_LABEL
from turngraph.model.node_answers import CandidatesLike

CHUNK_LOGITS = 2**24
"""Logits that are converted to float32 at once: 64 MiB."""
PROBE_TOKENS = 6
"""Length of the prompt, and of each of two answers, with which an LM is checked."""
TOLERANCE = 0.02
"""Largest difference of log-probabilities per token that is a rounding error, bf16 included."""


class Proposals(NamedTuple):
    """The likeliest candidates of each example under the scorer, best first.

    Args:
        indices: index of each proposal among the batch's candidates, 0 for padding, [B, K].
        exists: False on padding, where an example has fewer candidates, [B, K].
        logprobs: log-probability among all candidates of the example, [B, K].
    """

    indices: Tensor
    exists: Tensor
    logprobs: Tensor


class Written(NamedTuple):
    """Log-probabilities of texts after their prompts, summed over their tokens.

    Args:
        labels: of each label, 0 for padding, [B, K].
        target: of the target that stands in the row, 0 without one, [B].
    """

    labels: Tensor
    target: Tensor


def propose(logprobs: Tensor, candidates: CandidatesLike, num: int) -> Proposals:
    """Return up to ``num`` candidates of each example with the highest log-probabilities.

    Args:
        logprobs: the scorer's, [C]; gradients pass through the result.
        candidates: the C candidates.
        num: K at most.
    """
    sizes = candidates.num_candidates
    starts = sizes.cumsum(0) - sizes
    exists = torch.arange(int(sizes.max()), device=sizes.device) < sizes[:, None]
    padded = logprobs.new_full(exists.shape, -torch.inf)
    padded[exists] = logprobs.detach()
    order = padded.sort(dim=1, descending=True, stable=True).indices[:, :num]  # [B, K]
    exists = exists.gather(1, order)
    indices = (starts[:, None] + order).where(exists, 0)
    return Proposals(indices, exists, logprobs[indices])


def label_ids(candidates: CandidatesLike, proposals: Proposals) -> Tensor:
    """Return the token ids of the proposals' labels, padded with ``IGNORED_LABEL``, [B, K, A]."""
    assert candidates.label_ids is not None, "built without labels"
    ids = candidates.label_ids[proposals.indices]
    return ids.where(proposals.exists[:, :, None], IGNORED_LABEL)


def choice_loss(proposals: Proposals, written: Written, gold: Tensor, weight: float) -> Tensor:
    """Sum -log of the probability that the gold proposals have among the proposals.

        log p(a) = log p_LM(a) + weight log p_scorer(a) - log of the sum over the proposals

    It is the product of experts (Hinton, 2002) by which answers are chosen. Where no proposal is
    gold, the target itself is one more proposal, with the lowest of the scorer's log-probabilities.

    Args:
        proposals: with the scorer's log-probabilities.
        written: the LM's log-probabilities.
        gold: whether a candidate is a gold answer, [C].
        weight: of the scorer's log-probabilities.
    """
    exists = proposals.exists
    gold = gold[proposals.indices] & exists if len(gold) else exists  # [B, K]
    scores = (written.labels + weight * proposals.logprobs).masked_fill(~exists, -torch.inf)
    lowest = proposals.logprobs.detach().masked_fill(~exists, 0.0)
    lowest = functional.pad(lowest, (0, 1)).min(1).values  # 0 without proposals
    is_missing = ~gold.any(1)
    own = (written.target + weight * lowest).masked_fill(~is_missing, -torch.inf)
    scores = torch.cat([scores, own[:, None]], 1)  # [B, K + 1]
    gold = torch.cat([gold, is_missing[:, None]], 1)
    held = scores.masked_fill(~gold, -torch.inf)
    return (scores.logsumexp(1) - held.logsumexp(1)).sum()


def tree_logprobs(
    lm: PreTrainedModel,
    embeddings: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    labels: Tensor,
    branch_ids: Tensor,
    dtype: torch.dtype,
) -> Written:
    """Compute the log-probabilities of several continuations of each prompt, in one forward pass.

    Args:
        lm: a causal LM of transformers, or PEFT's wrapper of one, with attention sdpa or eager.
        embeddings: input embeddings of the prompts and, if there are any, their targets, padded on
            either side, [B, T, D].
        attention_mask: False on padding, [B, T].
        position_ids: position of each token in its row, [B, T].
        labels: the targets' ids at their own positions, ``IGNORED_LABEL`` elsewhere, [B, T].
        branch_ids: the continuations, padded on the right with ``IGNORED_LABEL``, [B, K, A].
        dtype: of the attention's mask, that of its queries.
    """
    num_columns = embeddings.shape[1]
    in_prompt = attention_mask & (labels == IGNORED_LABEL)  # [B, T]
    branch_ids = functional.pad(branch_ids, (0, 1), value=IGNORED_LABEL)  # A is at least 2
    fed = (branch_ids[:, :, 1:] != IGNORED_LABEL).flatten(1)  # [B, K (A - 1)]
    num_fed = int(fed.sum(1).max())
    order = (~fed).long().argsort(dim=1, stable=True)[:, :num_fed]  # [B, S]
    exists = fed.gather(1, order)
    branch = order // (branch_ids.shape[2] - 1)
    offset = order % (branch_ids.shape[2] - 1)
    tokens = branch_ids[:, :, :-1].flatten(1).gather(1, order).where(exists, 0)
    nexts = branch_ids[:, :, 1:].flatten(1).gather(1, order)
    mask = _tree_mask(attention_mask, in_prompt, branch, offset, exists)
    floats = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    floats.masked_fill_(~mask, torch.finfo(dtype).min)
    targets = functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)  # [B, T]
    before_target = targets != IGNORED_LABEL
    last = num_columns - 1 - in_prompt.flip(1).long().argmax(1)  # [B]
    kept = torch.cat([before_target, exists], 1)  # [B, T + S]
    kept[torch.arange(len(last), device=last.device), last] = True
    columns = kept.any(0).nonzero().squeeze(1)
    logits = lm(
        inputs_embeds=torch.cat([embeddings, embedding_table(lm)(tokens)], 1),
        attention_mask=floats[:, None],
        position_ids=torch.cat([position_ids, in_prompt.sum(1)[:, None] + offset], 1),
        use_cache=False,
        logits_to_keep=columns,
    ).logits[kept[:, columns]]  # [P, V]

    # each token whose log-probability counts: the row of its logits, its id, the text it belongs to
    rows = (kept.flatten().cumsum(0) - 1).view_as(kept)
    is_some = branch_ids[:, :, 0] != IGNORED_LABEL  # [B, K]
    num_texts = is_some.numel()
    texts = torch.arange(num_texts + len(last), device=last.device)  # the branches, the targets
    own_texts, own_targets = texts[:num_texts].view_as(is_some), texts[num_texts:, None]
    parts = (
        (rows.gather(1, last[:, None]).expand_as(is_some), branch_ids[:, :, 0], own_texts, is_some),
        (rows[:, num_columns:], nexts, own_texts.gather(1, branch), exists),
        (rows[:, :num_columns], targets, own_targets.expand_as(targets), before_target),
    )
    at, ids, owners = (torch.cat([part[i][part[3]] for part in parts]) for i in range(3))  # [Q]
    logprobs = _token_logprobs(logits, at, ids)
    sums = logprobs.new_zeros(len(texts)).index_add(0, owners, logprobs)
    return Written(sums[:num_texts].view_as(is_some), sums[num_texts:])


def _tree_mask(
    attention_mask: Tensor, in_prompt: Tensor, branch: Tensor, offset: Tensor, exists: Tensor
) -> Tensor:
    """Return which columns each column attends to, [B, T + S, T + S].

    Args:
        attention_mask: False on padding, [B, T].
        in_prompt: True on the prompts, which all branches attend to, [B, T].
        branch: index of each token's branch, [B, S].
        offset: its index in the branch, [B, S].
        exists: False on padding, [B, S].
    """
    num, length = attention_mask.shape
    size = length + branch.shape[1]
    mask = torch.zeros((num, size, size), dtype=torch.bool, device=branch.device)
    causal = torch.ones((length, length), dtype=torch.bool, device=branch.device).tril()
    mask[:, :length, :length] = attention_mask[:, None] & causal
    mask[:, length:, :length] = in_prompt[:, None]
    same = (branch[:, :, None] == branch[:, None]) & exists[:, None]
    mask[:, length:, length:] = same & (offset[:, :, None] >= offset[:, None])
    return mask | torch.eye(size, dtype=torch.bool, device=branch.device)  # padding sees itself


def _token_logprobs(logits: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """Return log-probabilities of tokens, in float32.

    Args:
        logits: [P, V].
        rows: row of each token's logits, [Q].
        ids: the tokens, [Q].
    """
    num = max(CHUNK_LOGITS // logits.shape[1], 1)
    totals = [
        checkpoint(_normaliser, chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in logits.split(num)
    ]
    return logits[rows, ids].float() - torch.cat(totals)[rows]


def _normaliser(logits: Tensor) -> Tensor:
    return logits.float().logsumexp(-1)


@torch.no_grad()
def check_branches(lm: PreTrainedModel) -> None:
    """Check that an LM reads two continuations of a prompt in one row as it does one by one.

    It must take a mask and positions of its caller's: models with a recurrent state do not, those
    whose attention knows distances by the column alone neither, and a sliding window would hide
    the prompt.

    Args:
        lm: the base model, with or without adapters.

    Raises:
        ValueError: it reads them otherwise.
    """
    config = lm.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    limited = sorted(kinds - {"full_attention"}) or ([f"a window of {window}"] if window else [])
    if limited:
        raise ValueError(_refusal(lm, f"has layers with {', '.join(limited)}"))
    table = embedding_table(lm)
    device, num = table.weight.device, table.num_embeddings
    ids = (torch.arange(3 * PROBE_TOKENS, device=device) * (num // (3 * PROBE_TOKENS))).view(3, -1)
    dtype = (
        torch.get_autocast_dtype(device.type)
        if torch.is_autocast_enabled(device.type)
        else (table.weight.dtype)
    )
    training = lm.training
    lm.eval()
    try:
        found = [
            _probed(lm, ids[0], branches, dtype) for branches in (ids[None, 1:], ids[1:, None])
        ]
    finally:
        lm.train(training)
    difference = float((found[0] - found[1]).abs().max()) / PROBE_TOKENS
    if not difference <= TOLERANCE:
        raise ValueError(_refusal(lm, "reads proposals otherwise together than one by one"))


def _probed(lm: PreTrainedModel, prompt: Tensor, branches: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the log-probabilities of branches, [B, K, A], after copies of a prompt, [B K]."""
    rows = prompt.repeat(len(branches), 1)
    return tree_logprobs(
        lm,
        embedding_table(lm)(rows),
        torch.ones_like(rows, dtype=torch.bool),
        torch.arange(len(prompt), device=rows.device).expand_as(rows),
        torch.full_like(rows, IGNORED_LABEL),
        branches,
        dtype,
    ).labels.flatten()


def _refusal(lm: PreTrainedModel, reason: str) -> str:
    return (
        f"config field model.answers: choice given, but {lm.config.model_type} {reason}; its "
        "attention must take a mask of proposals"
    )
