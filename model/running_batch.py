"""Decodes greedily in a batch that rows join and leave between two steps (continuous batching).

The keys and values of all rows are stored in one tensor and end at the same column, as with left
padding in a fixed batch, so that a step appends one column for all rows.

Shapes: L rows, T tokens of a prompt, V vocabulary, K key-value heads, C width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from turngraph.configs.user_error import UserError
from turngraph.model.evidence_model import BatchLike
from turngraph.model.generation import (
    ATTENTION,
    Past,
    PreallocatedLayer,
    key_value_cache,
    last_column,
    likeliest,
)
from turngraph.model.text_lm import TextLM

SPARE = 64
"""Fewest spare columns of a store when it is allocated anew. It gets these, or an eighth of its
columns if that is more, and a quarter more rows. So it is at most 1.5 times as large as its
content, plus these columns."""


@dataclass(eq=False)
class Row:
    """One answer that is being generated.

    Attributes:
        max_new_tokens: most tokens of the answer.
        length: tokens in the cache.
        ids: the answer so far, its end token included.
        logprob: log-probability of the answer so far.
        margin: smallest lead of its tokens over the next likely one, in logits.
        done: whether nothing more will be generated.
    """

    max_new_tokens: int
    length: int
    ids: list[int] = field(default_factory=list)
    logprob: float = 0.0
    margin: float = float("inf")
    done: bool = False


class JoinedLayer(DynamicLayer):
    """Keys and values of one layer for rows that join and leave."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers' is untyped
        self._stores: list[Tensor] = []
        self._num = self._begin = self._end = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Append one column, [L, K, 1, C] each; return all of them, [L, K, columns, C]."""
        if self._end == self._stores[0].shape[2]:
            self._lay_out(self._num, self._end - self._begin)
        for store, new in zip(self._stores, (key_states, value_states), strict=True):
            store[: self._num, :, self._end : self._end + 1] = new
        self._end += 1
        return self._show()

    def join(self, keys: Tensor, values: Tensor) -> None:
        """Add one row behind the others, [1, K, T, C] each."""
        if not self._stores:
            self.lazy_initialization(keys, values)
            self._stores = [new.new_empty(0, *new.shape[1:]) for new in (keys, values)]
        length = keys.shape[2]
        if self._num == self._stores[0].shape[0] or length > self._end:
            self._lay_out(self._num + 1, max(length, self._end - self._begin))
        for store, new in zip(self._stores, (keys, values), strict=True):
            store[self._num, :, self._end - length : self._end] = new[0]
        self._num += 1
        self._begin = min(self._begin, self._end - length)
        self._show()

    def keep(self, indices: list[int], longest: int) -> None:
        """Keep some rows, in the given order, and the last ``longest`` columns."""
        if not self._stores:  # the layer shares another layer's keys and values
            return
        if not indices:  # without rows nothing stays allocated
            self._stores = [store.new_empty(0, *store.shape[1:]) for store in self._stores]
        self._begin = self._end - longest
        if indices != list(range(len(indices))):
            chosen = torch.tensor(indices, device=self._stores[0].device)
            for store in self._stores:
                columns = slice(self._begin, self._end)
                store[: len(indices), :, columns] = store[chosen, :, columns]
        self._num = len(indices)
        self._show()

    def _lay_out(self, rows: int, end: int) -> None:
        """Move the columns so that they end at ``end``, in stores with room for more than that."""
        width, moved = self._end - self._begin, []
        for store in self._stores:
            shape = (rows + rows // 4, store.shape[1], end + max(SPARE, end // 8), store.shape[3])
            new = store.new_zeros(shape)  # a masked column must be finite: 0 times NaN is NaN
            kept = store[: self._num, :, self._begin : self._end]
            new[: self._num, :, end - width : end] = kept
            moved.append(new)
        self._stores = moved  # at once: out of memory above leaves the old stores
        self._begin, self._end = end - width, end

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (s[: self._num, :, self._begin : self._end] for s in self._stores)
        self.keys, self.values = keys, values
        return keys, values


class RunningBatch:
    """Rows of different prompts that are decoded together, each until its own end.

    Answers equal those of ``TextLM.generate`` up to the rounding of float sums.

    Args:
        model: in evaluation mode.
        end_id: token that ends a turn.

    Attributes:
        rows: the unfinished rows.

    Raises:
        UserError: the LM has other layers than attention.
    """

    def __init__(self, model: TextLM, end_id: int) -> None:
        config = model.causal_lm.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - ATTENTION
        if kinds or model.causal_lm._is_stateful:
            named = ", ".join(sorted(kinds)) or config.model_type
            raise UserError(f"answers are not batched for an LM with layers of type {named}")
        self.model, self.rows = model, list[Row]()
        self._ends = set(model.end_ids(end_id))
        self._cache = Cache(layers=[JoinedLayer() for _ in range(config.num_hidden_layers)])

    @torch.no_grad()
    def add(self, batch: BatchLike, max_new_tokens: int, past: Past | None = None) -> Row:
        """Read a prompt and generate the first token of its answer.

        Args:
            batch: one example, without target.
            max_new_tokens: most tokens of the answer.
            past: prefix cache of the conversation; it is read and updated.

        Returns:
            The row, which is in ``rows`` unless it is done. After an error it is not in ``rows``,
            and the other rows can go on.
        """
        assert len(batch.input_ids) == 1, "one prompt at a time"
        with self.model.decoding():
            embeddings = self.model.input_embeddings(batch)
            length = embeddings.shape[1]
            cache = key_value_cache(self.model.causal_lm, length)
            if cached := 0 if past is None else past.num_cached(embeddings):
                assert past is not None
                past.fill(cache, cached)
            logits = self._logits(
                cache,
                inputs_embeds=embeddings[:, cached:],
                position_ids=batch.position_ids[:, cached:],
            )
        if past is not None:
            past.update(cache, embeddings)
        row = Row(max_new_tokens, length)
        self._append([row], logits)
        if not row.done:
            try:
                self._join(cache)
            except BaseException:  # out of memory in one layer: the layers before it drop the row
                self.drop([])
                raise
            self.rows.append(row)
        return row

    def _join(self, cache: Cache) -> None:
        """Add the row of a filled cache to every layer."""
        for layer, filled in zip(self._cache.layers, cache.layers, strict=True):
            assert isinstance(layer, JoinedLayer)
            assert isinstance(filled, PreallocatedLayer)
            if filled.is_initialized:
                layer.join(*filled.held())

    @torch.no_grad()
    def step(self) -> list[Row]:
        """Generate one more token for every row; return these rows, of which some may be done."""
        rows = list(self.rows)
        if not rows:
            return []
        device = self.model.device
        lengths = torch.tensor([row.length for row in rows], device=device)
        last = torch.tensor([row.ids[-1] for row in rows], device=device)
        longest = int(max(row.length for row in rows)) + 1
        columns = torch.arange(longest, device=device)
        mask = columns >= longest - 1 - lengths[:, None]  # [L, columns]
        with self.model.decoding():
            logits = self._logits(
                self._cache,
                input_ids=last[:, None],
                position_ids=lengths[:, None],
                attention_mask=None if mask.all() else mask.long(),
            )
        for row in rows:
            row.length += 1
        self._append(rows, logits)
        if any(row.done for row in rows):
            self.drop([row for row in rows if row.done])
        return rows

    def drop(self, rows: list[Row]) -> None:
        """Evict rows, finished or not."""
        gone = set(map(id, rows))
        kept = [index for index, row in enumerate(self.rows) if id(row) not in gone]
        self.rows = [self.rows[index] for index in kept]
        longest = max((row.length for row in self.rows), default=0)
        for layer in self._cache.layers:
            assert isinstance(layer, JoinedLayer)
            layer.keep(kept, longest)

    def _logits(self, cache: Cache, **inputs: Tensor | None) -> Tensor:
        """Compute the logits of every row's next token, in float32, [L, V]."""
        output = self.model.causal_lm(
            **inputs,
            past_key_values=cache,
            logits_to_keep=last_column(self.model.device),
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def _append(self, rows: list[Row], logits: Tensor) -> None:
        """Append the likeliest token to each row."""
        columns = [values.tolist() for values in likeliest(logits)]
        for row, id_, logprob, margin in zip(rows, *columns, strict=True):
            row.ids.append(id_)
            row.logprob += logprob
            row.margin = min(row.margin, margin)
            row.done = id_ in self._ends or len(row.ids) >= row.max_new_tokens
