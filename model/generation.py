"""Greedy decoding from embeddings, many rows at a time, and how likely given answers are.

A row leaves the batch where its answer ends, and the key-value cache has room for what is to come:
a step costs what the answers that still go on cost.

Shapes: B examples, L of them still going on, T tokens of the padded prompts, D LM width,
V vocabulary, K key-value heads, C width of a head, P proposed answers of up to A tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

IGNORED_LABEL = -100
PROPOSALS_AT_ONCE = 16
TOKENS_AT_ONCE = 2**14
"""Of the prompts of so many proposals, where they are long."""
REPLACING = {DynamicLayer, DynamicSlidingWindowLayer}
"""Layers of a cache that never write over what a copy of them shares with them."""
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layers whose past is keys and values; a window is in the mask that the LM makes."""


class Generated(NamedTuple):
    """Generated ids, [B, new], padded behind the end of the turn; log-probability of each, [B]."""

    ids: Tensor
    logprobs: Tensor


class RoomyLayer(DynamicLayer):
    """Keys and values of one layer, with room for the tokens to come.

    Args:
        room: most tokens of a row, those of the prompt included.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values behind those that are there; all of them, [L, K, tokens, C]."""
        start = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._stores = [
                new.new_empty((*new.shape[:2], self.room, new.shape[3]))
                for new in (key_states, value_states)
            ]
        end = start + key_states.shape[2]
        for store, new in zip(self._stores, (key_states, value_states), strict=True):
            store[: len(new), :, start:end] = new
        self.keys, self.values = (s[: len(key_states), :, :end] for s in self._stores)
        return self.keys, self.values

    def keep(self, holes: Tensor, movers: Tensor, num_rows: int) -> None:
        """Leave so many rows, those that moved into the places of others among them."""
        if not self.is_initialized:  # a layer that reads another one's keys and values
            return
        length = self.get_seq_length()
        for store in self._stores:
            store[holes, :, :length] = store[movers, :, :length]
        self.keys, self.values = (store[:num_rows, :, :length] for store in self._stores)


class Past:
    """Keys and values of the last prompt of a conversation, for the next one that begins alike.

    One row, without padding. How far two prompts are alike is seen in their embeddings, bit for
    bit, so that node states that another graph has changed are never taken for the same.
    """

    def __init__(self) -> None:
        self._embeddings: Tensor | None = None
        self._layers: list[tuple[Tensor, Tensor]] = []

    def known(self, embeddings: Tensor) -> int:
        """How many first positions of a prompt, [1, T, D], need not be read again."""
        if self._embeddings is None:
            return 0
        # the last position is read in any case: the first token of the answer comes from it
        return common_start(embeddings[0, :-1], self._embeddings[0])

    def give(self, cache: Cache, length: int) -> None:
        """Fill the first positions of an empty cache."""
        for layer, (keys, values) in zip(cache.layers, self._layers, strict=True):
            layer.update(keys[:, :, :length], values[:, :, :length])

    def take(self, cache: Cache, embeddings: Tensor) -> None:
        """Keep a prompt, [1, T, D], that has just been read into a cache."""
        layers = cache.layers
        if all(isinstance(layer, RoomyLayer) and layer.is_initialized for layer in layers):
            self._embeddings = None  # an interrupt between the two leaves no mixture
            self._layers = [(layer.keys, layer.values) for layer in layers]
            self._embeddings = embeddings


def common_start(one: Tensor, other: Tensor) -> int:
    """How many first rows of two matrices are equal, bit for bit."""
    length = min(len(one), len(other))
    return int((one[:length] == other[:length]).all(1).long().cumprod(0).sum())


def key_value_cache(lm: PreTrainedModel, room: int) -> Cache:
    """An empty cache for rows of up to ``room`` tokens; transformers' own for other layers."""
    config = lm.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - ATTENTION or lm._is_stateful:
        return DynamicCache(config=config)
    return Cache(layers=[RoomyLayer(room) for _ in range(config.num_hidden_layers)])


@torch.no_grad()
def greedy(
    lm: nn.Module,
    embeddings: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    max_new_tokens: int,
    ends: Tensor,
    on_token: Callable[[Tensor], None] | None = None,
    synced: bool = False,
    past: Past | None = None,
) -> Generated:
    """The likeliest next token, again and again.

    Args:
        lm: a causal LM of transformers, or PEFT's around one.
        embeddings: of the prompts, padded on the left, [B, T, D].
        attention_mask: False on padding, [B, T].
        position_ids: [B, T].
        max_new_tokens: longest answer.
        ends: ids that end an answer; the first one fills up the shorter answers.
        on_token: called after every step with the new ids, [B].
        synced: whether layers are gathered by all processes, so that none may stop before others.
        past: of the conversation, where B is 1; it is read and brought up to date.
    """
    assert past is None or len(embeddings) == 1, "a past is one conversation's"
    ids = ends[:1].repeat(len(embeddings), max_new_tokens)
    logprobs = torch.zeros(len(embeddings), device=ids.device)
    rows = _Rows(lm, attention_mask, position_ids, max_new_tokens)
    known = 0 if past is None else rows.go_on_from(past, embeddings)
    inputs, step = {"inputs_embeds": embeddings[:, known:]}, 0
    while _somewhere(going := len(rows.numbers) > 0 and step < max_new_tokens, synced, ids.device):
        if not going:  # the others need this process's part of every layer
            lm(inputs_embeds=embeddings[:1, -1:], use_cache=False)
            continue
        logits = rows.logits(inputs)  # [L, V]
        if past is not None and step == 0:
            past.take(rows.cache, embeddings)
        best, chosen = logits.max(-1)  # [L]
        ids[rows.numbers, step] = chosen
        logprobs[rows.numbers] += best - logits.logsumexp(-1)
        if on_token is not None:
            on_token(ids[:, step])
        live = rows.keep(~torch.isin(chosen, ends))
        inputs = {"input_ids": chosen[live, None]}
        step += 1
    return Generated(ids[:, :step], logprobs)


class _Rows:
    """The rows that still go on, with all that the LM needs to know of their past."""

    def __init__(
        self, lm: nn.Module, attention_mask: Tensor, position_ids: Tensor, max_new_tokens: int
    ) -> None:
        num, length = attention_mask.shape
        self.lm = lm
        self.cache = key_value_cache(lm, length + max_new_tokens)
        self.numbers = torch.arange(num, device=attention_mask.device)  # [L]
        # without padding no mask at all is the fastest
        padded = not attention_mask.all()
        self.mask = functional.pad(attention_mask.long(), (0, max_new_tokens), value=1)
        self.mask = self.mask if padded else None  # [L, T + new]
        self.positions = position_ids  # [L, T], then [L, 1]
        self.length = length

    def go_on_from(self, past: Past, embeddings: Tensor) -> int:
        """Take over what is known of a prompt; how many positions that is."""
        if known := past.known(embeddings):
            past.give(self.cache, known)
            self.positions = self.positions[:, known:]
        return known

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Of the next token of every row, in float32, [L, V]."""
        output = self.lm(
            **inputs,
            attention_mask=None if self.mask is None else self.mask[:, : self.length],
            position_ids=self.positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.length += 1
        return output.logits[:, -1].float()

    def keep(self, live: Tensor) -> Tensor:
        """Let go of rows, [L]; which one of those before now stands in each place that is left."""
        places = torch.arange(len(live), device=live.device)
        if not (kept := live.tolist()).count(False):
            self.positions = self.positions[:, -1:] + 1
            return places
        num = sum(kept)
        holes = places[:num][~live[:num]]
        movers = places[num:][live[num:]]  # as many as there are holes
        order = places.index_copy(0, holes, movers)[:num]
        if isinstance(self.cache, DynamicCache):
            self.cache.reorder_cache(order)
        else:
            for layer in self.cache.layers:
                layer.keep(holes, movers, num)
        self.numbers = self.numbers[order]
        self.positions = self.positions[order, -1:] + 1
        self.mask = None if self.mask is None else self.mask[order]
        return order


def _somewhere(going: bool, synced: bool, device: torch.device) -> bool:
    """Whether this process still answers, or any of those that it must keep step with."""
    if not synced:
        return going
    flag = torch.tensor(float(going), device=device)
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


@torch.no_grad()
def answer_logprobs(
    lm: nn.Module,
    embeddings: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    answer_ids: Tensor,
    num_answers: Tensor,
) -> Tensor:
    """Log-probability of given answers, [P]; every prompt is read once for all of its answers.

    Args:
        lm, embeddings, attention_mask, position_ids: as of ``greedy``.
        answer_ids: the answers with their end of the turn, at least one token each, padded on the
            right with ``IGNORED_LABEL``; those of one prompt together, [P, A].
        num_answers: of each prompt, [B].
    """
    cache = DynamicCache(config=lm.config)
    output = lm(
        inputs_embeds=embeddings,
        attention_mask=attention_mask.long(),
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    first = output.logits[:, -1].float().log_softmax(-1)  # [B, V]
    owners = torch.repeat_interleave(num_answers)  # [P]
    found = first[owners, answer_ids[:, 0]]
    mask = functional.pad(attention_mask.long(), (0, answer_ids.shape[1] - 1), value=1)
    # copies of the cache take no more memory than the cache, or than a few of its rows
    few = min(PROPOSALS_AT_ONCE, TOKENS_AT_ONCE // embeddings.shape[1])
    for part in torch.arange(len(owners), device=owners.device).split(max(len(embeddings), few)):
        ids, rows = answer_ids[part], owners[part]
        length = int((ids != IGNORED_LABEL).sum(1).max())
        if length == 1:
            continue
        later = torch.arange(1, length, device=ids.device)
        logits = lm(
            input_ids=ids[:, : length - 1].clamp(min=0),
            attention_mask=mask[rows, : attention_mask.shape[1] + length - 1],
            position_ids=position_ids[rows, -1:] + later,
            past_key_values=_rows_of(cache, rows),
            use_cache=True,
        ).logits  # [rows, length - 1, V]
        found[part] += _logprobs(logits, ids[:, 1:length])
    return found


def _logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """Of rows of tokens, each without its padding: [P, A, V] and [P, A] to [P]."""
    losses = functional.cross_entropy(
        logits.float().transpose(1, 2), ids, ignore_index=IGNORED_LABEL, reduction="none"
    )
    return -losses.sum(1)


def _rows_of(cache: Cache, rows: Tensor) -> Cache:
    """Some rows of a cache, each as often as it is named; the cache itself stays as it is."""
    chosen = copy(cache)
    chosen.layers = [
        copy(layer) if type(layer) in REPLACING else deepcopy(layer) for layer in cache.layers
    ]
    chosen.reorder_cache(rows)
    return chosen
