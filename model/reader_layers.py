"""The LM's layers below and above a reader's graph, called one by one.

Below it, in layers 1 to L, passages are read in parallel: a passage sees the prompt's prefix, with
the dialogue, and itself. The layers above see prefix, kept passages, suffix and answer as one
causal row.

Shapes: T tokens of the B examples of a batch, D LM width, U tokens of the longest row above the
graph, K key-value heads, C width of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, Cache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import decoder_layers, embedding_table

ATTENTION = "turngraph_segments"
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
"""Architectures (``model_type``) whose layers can be called one by one: rotary positions, no scaled
embeddings, no windows."""


class SegmentsLike(Protocol):
    """Segments of similar length; ``data.batches.reading.Segments`` documents the shapes."""

    tokens: Tensor
    examples: Tensor
    mask: Tensor


class ReadingLike(Protocol):
    """A batch without padding; ``data.batches.reading.Reading`` documents the shapes."""

    token_ids: Tensor
    positions: Tensor
    labels: Tensor
    examples: Tensor
    passages: Tensor
    owners: Tensor
    num_read: list[int]
    num_other: list[int]
    prefixes: Tensor
    places: Tensor
    nodes: Tensor
    answers: Tensor
    num_answers: Tensor

    @property
    def segments(self) -> Sequence[SegmentsLike]:
        """Passages and suffixes, by length."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float,
    scaling: float,
    segments: ReadingLike | None = None,
    masks: list[Tensor] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention within segments; without segments it is transformers' ``sdpa``.

    Args:
        module: the layer's attention.
        query, key, value: of one row of T tokens, [1, heads, T, C] and [1, K, T, C].
        attention_mask: of transformers; unused with segments.
        dropout, scaling: of the attention weights.
        segments: the batch.
        masks: of the segments, which the first layer makes for all; empty before.

    Returns:
        [1, T, heads, C], and no weights.
    """
    if segments is None:
        attended: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return attended
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))  # [T, heads, C]
    prefixes = segments.prefixes
    first_keys, first_values = (part[prefixes].transpose(1, 2) for part in (k, v))  # [B, K, P, C]
    compute = partial(functional.scaled_dot_product_attention, dropout_p=dropout, scale=scaling)
    num_keys, repeats = k.shape[1], q.shape[1] // k.shape[1]
    of_prefixes = compute(
        q[prefixes].transpose(1, 2),
        first_keys,
        first_values,
        is_causal=True,
        enable_gqa=repeats > 1,
    )
    outputs = [of_prefixes.transpose(1, 2).flatten(0, 1)]  # [B P, heads, C]
    assert masks is not None, "segments come with masks"
    if not masks:
        masks += [added_mask(group.mask, repeats, q.dtype) for group in segments.segments]
    for group, mask in zip(segments.segments, masks, strict=True):
        of, tokens = group.examples, group.tokens
        keys, values = (
            torch.cat([first[of], part[tokens].transpose(1, 2)], 2)
            for first, part in ((first_keys, k), (first_values, v))
        )  # [R, K, P + M, C]
        # on CUDA flash attention takes no mask, and the memory-efficient kernel no heads that share
        # keys: these are further queries of one head
        queries = q[tokens].unflatten(2, (num_keys, repeats)).transpose(1, 2).flatten(2, 3)
        out = compute(queries, keys, values, attn_mask=mask)
        out = out.unflatten(2, (-1, repeats)).transpose(1, 2).flatten(2, 3)  # [R, M, heads, C]
        outputs.append(out.flatten(0, 1))
    return torch.cat(outputs)[segments.places][None], None


AttentionInterface.register(ATTENTION, attend)


def added_mask(mask: Tensor, repeats: int, kind: torch.dtype) -> Tensor:
    """Return a mask to be added to scores, with each query ``repeats`` times.

    Args:
        mask: True where a token sees another one, [R, 1, M, seen].
        repeats: heads of queries for each head of keys.
        kind: type of the queries.
    """
    added = torch.zeros_like(mask, dtype=kind).masked_fill_(~mask, -torch.inf)
    return added.repeat_interleave(repeats, 2)


class Above(NamedTuple):
    """Rows of the layers above the graph, padded to U tokens.

    Args:
        tokens: index of each token among those of the batch, [B, U]; 0 on padding.
        is_token: False on padding, [B, U].
        is_kept: whether a token is of a passage, [B, U].
    """

    tokens: Tensor
    is_token: Tensor
    is_kept: Tensor

    @property
    def positions(self) -> Tensor:
        """Position of each token in its row, [B, U]; 0 on padding before it."""
        return (self.is_token.cumsum(1) - 1).clamp(min=0)


class Recorder:
    """Keeps the keys and values that each layer computes, as a cache that is empty before."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Keep a layer's keys and values, [1, K, T, C] each."""
        self.layers[layer_idx] = key_states, value_states
        return key_states, value_states


class ReaderLayers:
    """The layers of an LM, called one by one: below the graph in segments, above it in rows.

    It holds no weights of its own, so that their names are those of the LM.

    Args:
        lm: a causal LM of ``FAMILIES``, with or without LoRA.
        layer: L, from 1 to the number of layers.

    Raises:
        UserError: the LM is of another family, has windows, or has fewer layers.
    """

    def __init__(self, lm: PreTrainedModel, layer: int) -> None:
        config = lm.config.get_text_config()
        layers = decoder_layers(lm)
        check_family(lm)
        if layer > len(layers):
            raise UserError(
                f"config field model.layer: {layer} given, the LM has {len(layers)} layers"
            )
        self.lm, self.layer, self.num_layers = lm, layer, len(layers)
        self.body: Any = lm.get_decoder()
        config._attn_implementation = ATTENTION

    def release_above(self) -> None:
        """Release the layers above the graph."""
        self.body.layers = self.body.layers[: self.layer]

    def embed(self, ids: Tensor) -> Tensor:
        """Embed token ids."""
        embedded: Tensor = embedding_table(self.lm)(ids)
        return embedded

    def below(self, reading: ReadingLike, recorder: Recorder | None = None) -> Tensor:
        """Compute the states of all tokens after layer L, [T, D]."""
        states = self.embed(reading.token_ids)[None]  # [1, T, D]
        return self._run(
            self.body.layers[: self.layer],
            states,
            reading.positions[None],
            None,
            recorder,
            segments=reading,
            masks=[],
        )[0]

    def above(
        self, states: Tensor, positions: Tensor, mask: Tensor | None, cache: Any = None
    ) -> Tensor:
        """Compute the states of rows after the last layer and its norm, [B, U, D].

        Args:
            states: after layer L, [B, U, D].
            positions: [B, U].
            mask: True where a token sees another one, [B, 1, U, seen]; None: causal.
            cache: keys and values of earlier tokens.
        """
        states = self._run(self.body.layers[self.layer :], states, positions, mask, cache)
        normed: Tensor = self.body.norm(states)
        return normed

    def next_below(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Any) -> Tensor:
        """Compute the states after layer L of tokens that follow cached ones, [B, new, D]."""
        layers = self.body.layers[: self.layer]
        return self._run(layers, self.embed(ids), positions, mask, cache)

    def _run(
        self,
        layers: nn.ModuleList,
        states: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Any,
        **more: Any,
    ) -> Tensor:
        rotary = self.body.rotary_emb(states, position_ids=positions)
        for layer in layers:
            output: Any = layer(
                states,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=rotary,
                past_key_values=cache,
                use_cache=cache is not None,
                **more,
            )
            states = output[0] if isinstance(output, tuple) else output
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Compute next-token logits from normed states."""
        head = self.lm.get_output_embeddings()
        assert head is not None, "no head"
        logits: Tensor = head(states)
        return logits


def check_family(lm: PreTrainedModel) -> None:
    """Check that an LM's layers can be called one by one.

    Raises:
        UserError: they cannot.
    """
    config = lm.config.get_text_config()
    has_window = getattr(config, "sliding_window", None) is not None  # of all layers (Mistral)
    of_all = "sliding_attention" if has_window else "full_attention"
    kinds = set(getattr(config, "layer_types", None) or [of_all])
    if config.model_type not in FAMILIES or kinds != {"full_attention"}:
        windows = " with sliding windows" if config.model_type in FAMILIES else ""
        raise UserError(
            f"config field model.layer: must be 0 for a base model of type {config.model_type!r}"
            f"{windows}; a layer above 0 needs a type of {', '.join(sorted(FAMILIES))}"
        )


@dataclass
class ReaderDecoder:
    """The reader as a causal LM that continues the rows of one batch, for ``generation``.

    A row's mask and positions have two channels: what is seen below the graph, which leaves out
    passages, and above it. The first call gets the states after layer L as embeddings; it fills the
    cache of the layers below from what they have recorded.

    Args:
        layers: of the LM.
        recorder: keys and values of the batch below the graph.
        rows: the batch's rows above the graph, padded on the left.
    """

    layers: ReaderLayers
    recorder: Recorder
    rows: Above

    @property
    def config(self) -> Any:
        """The LM's config."""
        return self.layers.lm.config

    @property
    def _is_stateful(self) -> bool:
        return False

    def __call__(
        self,
        *,
        position_ids: Tensor,
        use_cache: bool,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        logits_to_keep: Tensor | None = None,
    ) -> Any:
        """Return an object whose ``logits`` are those of the given tokens, [B, new, V]."""
        if attention_mask is None:  # all of them are True
            seen = position_ids.shape[2]
            if input_ids is not None and past_key_values is not None:
                seen += past_key_values.get_seq_length()
            attention_mask = position_ids.new_ones(len(position_ids), 2, seen)
        below, above = attention_mask.bool().unbind(1)  # [B, seen]
        positions_below, positions_above = position_ids.unbind(1)  # [B, new]
        if input_ids is None:
            assert inputs_embeds is not None, "neither ids nor embeddings"
            states = inputs_embeds
            for index in range(self.layers.layer):
                keys, values = (
                    part[0][:, self.rows.tokens].transpose(0, 1)  # [B, K, U, C]
                    for part in self.recorder.layers[index]
                )
                if past_key_values is not None:
                    past_key_values.update(keys, values, index)
        else:
            mask = causal_mask(below, input_ids.shape[1])
            states = self.layers.next_below(input_ids, positions_below, mask, past_key_values)
        mask = causal_mask(above, states.shape[1])
        states = self.layers.above(states, positions_above, mask, past_key_values)
        if logits_to_keep is not None:
            states = states[:, logits_to_keep]
        return _Logits(self.layers.logits(states))


class _Logits(NamedTuple):
    logits: Tensor


def causal_mask(seen: Tensor, num_new: int) -> Tensor:
    """Return which tokens the last ones of each row see, [B, 1, new, seen].

    Args:
        seen: False on tokens that no other one sees, [B, seen]; the new ones are the last.
        num_new: number of new tokens.
    """
    length = seen.shape[1]
    positions = torch.arange(length - num_new, length, device=seen.device)[:, None]  # [new, 1]
    columns = torch.arange(length, device=seen.device)
    mask = (columns <= positions) & seen[:, None]
    return (mask | (columns == positions))[:, None]  # a token sees itself, so that no row is empty
