"""Decodes greedily from embeddings in batches, and computes log-probabilities of given answers.

Finished rows are evicted from the batch, and the key-value cache is allocated once for the longest
answer, so that a step costs only as much as the unfinished rows.

Shapes: B examples, L of them unfinished, T tokens of the padded prompts, D LM width,
V vocabulary, K key-value heads, C width of a head, P proposed answers of up to A tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, distributed
from torch.nn import functional
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

IGNORED_LABEL = -100
PROPOSALS_AT_ONCE = 16
"""Most proposals per forward pass, unless a batch has more prompts."""
TOKENS_AT_ONCE = 2**14
"""Most prompt tokens per forward pass over proposals, unless the prompts of a batch have more."""
COPIED_ON_WRITE = {DynamicLayer, DynamicSlidingWindowLayer}
"""Cache layers that never write in place, so that a shallow copy is safe."""
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types that cache keys and values alone; the LM's own mask limits windows."""


class Generated(NamedTuple):
    """Generated answers.

    Args:
        ids: padded after the end token, [B, new].
        logprobs: log-probability of each answer, [B].
        margins: smallest lead of an answer's token over the next likely one, in logits, [B].
    """

    ids: Tensor
    logprobs: Tensor
    margins: Tensor


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer, preallocated for the longest answer.

    Args:
        capacity: most tokens of a row, those of the prompt included.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers' is untyped
        self.capacity = capacity

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values; return all of them, [L, K, tokens, C] each."""
        start = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._stores = [
                new.new_empty((*new.shape[:2], self.capacity, new.shape[3]))
                for new in (key_states, value_states)
            ]
        end = start + key_states.shape[2]
        for store, new in zip(self._stores, (key_states, value_states), strict=True):
            store[: len(new), :, start:end] = new
        self.keys, self.values = (s[: len(key_states), :, :end] for s in self._stores)
        return self.keys, self.values

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the stored keys and values, [L, K, tokens, C] each."""
        assert self.keys is not None, "nothing was written"
        assert self.values is not None, "nothing was written"
        return self.keys, self.values

    def keep(self, holes: Tensor, movers: Tensor, num_rows: int) -> None:
        """Keep the first rows, after moving other rows into the slots of evicted ones.

        Args:
            holes: slots of evicted rows among the first ``num_rows``.
            movers: rows to move there, as many as ``holes``.
            num_rows: number of rows that are kept.
        """
        if not self.is_initialized:  # the layer shares another layer's keys and values
            return
        length = self.get_seq_length()
        for store in self._stores:
            store[holes, :, :length] = store[movers, :, :length]
        self.keys, self.values = (store[:num_rows, :, :length] for store in self._stores)


class Decoder(Protocol):
    """An LM that can generate: a causal LM of transformers, PEFT's wrapper, or a ``ReaderDecoder``.

    It also has ``_is_stateful``, whether it keeps other states than keys and values.
    """

    @property
    def config(self) -> Any:
        """The LM's config."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Return an object with ``logits``, [B, new, V]."""


class Past:
    """Prefix cache: keys and values of a conversation's last prompt, reused for the next one.

    It holds one row, without padding. The common prefix is found by comparing embeddings bit for
    bit, so that node states which differ in another graph are never reused.
    """

    def __init__(self) -> None:
        self._embeddings: Tensor | None = None
        self._layers: list[tuple[Tensor, Tensor]] = []

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the last prompt."""
        held = self._embeddings  # which another thread may drop
        return 0 if held is None else held.shape[1]

    def clear(self) -> None:
        """Drop the last prompt."""
        self._embeddings, self._layers = None, []

    def num_cached(self, embeddings: Tensor) -> int:
        """Return the length of the common prefix of a prompt, [1, T, D], and the last prompt."""
        if self._embeddings is None:
            return 0
        # the last position is always computed: the first token of the answer comes from it
        return common_start(embeddings[0, :-1], self._embeddings[0])

    def fill(self, cache: Cache, length: int) -> None:
        """Copy the first ``length`` positions into an empty cache."""
        for layer, (keys, values) in zip(cache.layers, self._layers, strict=True):
            assert isinstance(layer, PreallocatedLayer), "the cache of another LM"
            layer.update(keys[:, :, :length], values[:, :, :length])

    def update(self, cache: Cache, embeddings: Tensor) -> None:
        """Store the keys and values of a prompt, [1, T, D], from the cache that it has filled."""
        layers = [layer for layer in cache.layers if isinstance(layer, PreallocatedLayer)]
        if len(layers) == len(cache.layers) and all(layer.is_initialized for layer in layers):
            self._embeddings = None  # first: an interrupt must not mix two prompts
            self._layers = [layer.held() for layer in layers]
            self._embeddings = embeddings


def common_start(one: Tensor, other: Tensor) -> int:
    """Return the number of leading rows in which two matrices are equal, bit for bit."""
    length = min(len(one), len(other))
    return int((one[:length] == other[:length]).all(1).long().cumprod(0).sum())


def key_value_cache(lm: Decoder, capacity: int) -> Cache:
    """Make an empty cache for rows of up to ``capacity`` tokens.

    LMs with other layers than attention get transformers' own dynamic cache.
    """
    config = lm.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - ATTENTION or getattr(lm, "_is_stateful", False):
        return DynamicCache(config=config)
    return Cache(layers=[PreallocatedLayer(capacity) for _ in range(config.num_hidden_layers)])


@torch.no_grad()
def greedy(
    lm: Decoder,
    embeddings: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    max_new_tokens: int,
    ends: Tensor,
    on_token: Callable[[Tensor], None] | None = None,
    synced: bool = False,
    past: Past | None = None,
) -> Generated:
    """Generate the most likely next token until every answer ends.

    Args:
        lm: a causal LM of transformers, or PEFT's wrapper of one.
        embeddings: input embeddings of the prompts, padded on the left, [B, T, D].
        attention_mask: False on padding, [B, T]; or with channels of the LM's own, [B, ..., T].
        position_ids: position of each token in its prompt, of the same shape.
        max_new_tokens: most tokens of an answer.
        ends: ids that end an answer; the first one pads shorter answers.
        on_token: called after every step with the new ids, [B].
        synced: whether the model is sharded: then no process may stop before the others.
        past: prefix cache of the conversation, if B is 1; it is read and updated.
    """
    assert past is None or len(embeddings) == 1, "a past belongs to one conversation"
    ids = ends[:1].repeat(len(embeddings), max_new_tokens)
    logprobs = torch.zeros(len(embeddings), device=ids.device)
    margins = torch.full_like(logprobs, torch.inf)
    rows = Rows(lm, attention_mask, position_ids, max_new_tokens)
    cached = 0 if past is None else rows.continue_from(past, embeddings)
    inputs, step = {"inputs_embeds": embeddings[:, cached:]}, 0
    while _any_process(
        going := len(rows.indices) > 0 and step < max_new_tokens, synced=synced, device=ids.device
    ):
        if not going:  # the other processes gather this one's shard of every layer
            lm(input_ids=ids[:1, :1], position_ids=position_ids[:1, ..., -1:], use_cache=False)
            continue
        logits = rows.logits(inputs)  # [L, V]
        if past is not None and step == 0:
            past.update(rows.cache, embeddings)
        chosen, logprob, margin = likeliest(logits)  # [L]
        ids[rows.indices, step] = chosen
        logprobs[rows.indices] += logprob
        margins[rows.indices] = margins[rows.indices].minimum(margin)
        if on_token is not None:
            on_token(ids[:, step])
        live = rows.keep(~torch.isin(chosen, ends))
        inputs = {"input_ids": chosen[live, None]}
        step += 1
    return Generated(ids[:, :step], logprobs, margins)


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's likeliest token, its log-probability, and its lead over the next, [L]."""
    best, chosen = logits.topk(2)  # [L, 2]
    return chosen[:, 0], best[:, 0] - logits.logsumexp(-1), best[:, 0] - best[:, 1]


class Rows:
    """The unfinished rows with their cache, mask and positions.

    Attributes:
        indices: indices of the rows in the batch, [L].
    """

    def __init__(
        self, lm: Decoder, attention_mask: Tensor, position_ids: Tensor, max_new_tokens: int
    ) -> None:
        num, length = len(attention_mask), attention_mask.shape[-1]
        self.lm = lm
        self.cache = key_value_cache(lm, length + max_new_tokens)
        self.indices = torch.arange(num, device=attention_mask.device)  # [L]
        self.mask: Tensor | None = None  # [L, ..., T + new]; None is faster than ones
        if not attention_mask.all():
            self.mask = functional.pad(attention_mask.long(), (0, max_new_tokens), value=1)
        self.positions = position_ids  # [L, T], then [L, 1]
        self.length = length

    def continue_from(self, past: Past, embeddings: Tensor) -> int:
        """Fill the cache with the prefix that ``past`` holds; return its length."""
        if cached := past.num_cached(embeddings):
            past.fill(self.cache, cached)
            self.positions = self.positions[:, cached:]
        return cached

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Compute the logits of every row's next token, in float32, [L, V]."""
        output = self.lm(
            **inputs,
            attention_mask=None if self.mask is None else self.mask[..., : self.length],
            position_ids=self.positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=last_column(self.indices.device),
        )
        self.length += 1
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def keep(self, live: Tensor) -> Tensor:
        """Evict the rows where ``live``, [L], is False; return the old slot of every kept row."""
        slots = torch.arange(len(live), device=live.device)
        if not (kept := live.tolist()).count(False):
            self.positions = self.positions[..., -1:] + 1
            return slots
        num = sum(kept)
        holes = slots[:num][~live[:num]]
        movers = slots[num:][live[num:]]  # as many as there are holes
        order = slots.index_copy(0, holes, movers)[:num]
        if isinstance(self.cache, DynamicCache):
            self.cache.reorder_cache(cast(torch.LongTensor, order))
        else:
            for layer in self.cache.layers:
                assert isinstance(layer, PreallocatedLayer), type(layer)
                layer.keep(holes, movers, num)
        self.indices = self.indices[order]
        self.positions = self.positions[order][..., -1:] + 1
        self.mask = None if self.mask is None else self.mask[order]
        return order


def _any_process(going: bool, *, synced: bool, device: torch.device) -> bool:
    """Tell whether this process or, where ``synced``, any process is still generating."""
    if not synced:
        return going
    flag = torch.tensor(float(going), device=device)
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


def last_column(device: torch.device) -> Tensor:
    """Return the index of the last column, [1], for ``logits_to_keep``.

    The number 1 would make the LM take a slice, whose product with the output embeddings copies
    them on a CPU: 100 ms for each prompt of a model of 49,152 x 576.
    """
    return torch.full((1,), -1, device=device)


@torch.no_grad()
def answer_logprobs(
    lm: Decoder,
    embeddings: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    answer_ids: Tensor,
    num_answers: Tensor,
    synced: bool = False,
) -> Tensor:
    """Compute the log-probability of given answers, [P]; each prompt is computed once.

    Args:
        lm, embeddings, attention_mask, position_ids: as for ``greedy``.
        answer_ids: the answers with their end of the turn, at least one token each, padded on the
            right with ``IGNORED_LABEL``, grouped by prompt, [P, A].
        num_answers: number of answers of each prompt, [B].
        synced: as for ``greedy``.
    """
    cache = DynamicCache(config=lm.config)
    output = lm(
        inputs_embeds=embeddings,
        attention_mask=attention_mask.long(),
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=last_column(embeddings.device),
    )
    first: Tensor = output.logits[:, -1].float().log_softmax(-1)  # [B, V]
    owners = torch.repeat_interleave(num_answers)  # [P]
    logprobs = first[owners, answer_ids[:, 0]]
    mask = functional.pad(attention_mask.long(), (0, answer_ids.shape[1] - 1), value=1)
    # the copy of the cache takes no more memory than the cache itself or a few of its rows
    few = min(PROPOSALS_AT_ONCE, TOKENS_AT_ONCE // embeddings.shape[1])
    lengths = (answer_ids != IGNORED_LABEL).sum(1)
    by_length = lengths.argsort(stable=True)  # a long answer pads few others
    parts = list(by_length.split(max(len(embeddings), few)))
    while _any_process(bool(parts), synced=synced, device=embeddings.device):
        part = parts.pop(0) if parts else by_length[:0]
        ids, rows = answer_ids[part], owners[part]
        length = int(lengths[part[-1]]) if len(part) else 1
        if length == 1:
            if synced:  # the other processes gather this one's shard of every layer
                lm(
                    input_ids=answer_ids.new_zeros(1, 1),
                    position_ids=position_ids[:1, ..., -1:],
                    use_cache=False,
                )
            continue
        later = torch.arange(1, length, device=ids.device)
        logits = lm(
            input_ids=ids[:, : length - 1].clamp(min=0),
            attention_mask=mask[rows][..., : attention_mask.shape[-1] + length - 1],
            position_ids=position_ids[rows][..., -1:] + later,
            past_key_values=rows_of(cache, rows),
            use_cache=True,
        ).logits  # [rows, length - 1, V]
        logprobs[part] += _logprobs(logits, ids[:, 1:length])
    return logprobs


def _logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """Sum each row's log-probabilities without its padding: [P, A, V] and [P, A] to [P]."""
    losses: Tensor = functional.cross_entropy(
        logits.float().transpose(1, 2), ids, ignore_index=IGNORED_LABEL, reduction="none"
    )
    return -losses.sum(1)


def rows_of(cache: Cache, rows: Tensor) -> Cache:
    """Return a copy of a cache with the given rows, which may repeat."""
    chosen = copy(cache)
    chosen.layers = [
        copy(layer) if type(layer) in COPIED_ON_WRITE else deepcopy(layer) for layer in cache.layers
    ]
    chosen.reorder_cache(cast(torch.LongTensor, rows))
    return chosen
