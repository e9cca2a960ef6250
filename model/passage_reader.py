"""Computes node features by the first layers of the LM, which read the question first.

Shapes: N nodes, S segments (passages, and the question of each example), D LM width.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from turngraph.model.base_model import LORA, decoder_layers
from turngraph.model.generation import rows_of

TOKENS_AT_ONCE = 1024
"""Tokens of a forward pass over passages of similar length, padding included."""


class PassageReader(nn.Module):
    """The first layers of an LM, which read each passage by itself after the question.

    A passage's states are those of the row ``[bos] question passage``, so that they depend on the
    question. The question's own states depend on no passage, and are computed once for all.
    The layers are frozen, but for LoRA if they have it.

    Args:
        base: a causal LM, with or without LoRA; layers above ``layer`` and its head are released.
        layer: number of layers, from 1; the output of the last one is kept, before any norm.

    Attributes:
        folder: keeps the states of each example, so that they are computed once; None: they are
            computed at each call.
        is_trained: whether the layers have LoRA, which gets gradients; states are not kept then.
        max_tokens: the most tokens that a passage and its question may have; None: no limit.
        recomputes: whether activations are computed again in the backward pass, a group of passages
            after the other, instead of kept.

    Raises:
        ValueError: the LM has fewer layers.
    """

    def __init__(self, base: PreTrainedModel, layer: int) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.recomputes = False
        layers = decoder_layers(base)
        if layer > len(layers):
            raise ValueError(
                f"config field model.scorer.layer: {layer} given, the LM has {len(layers)} layers"
            )
        self.config = base.config.get_text_config()
        self.max_tokens: int | None = getattr(self.config, "max_position_embeddings", None)
        self.bos: int | None = getattr(self.config, "bos_token_id", None)
        self.width: int = self.config.hidden_size
        self.body = base.get_decoder()
        [(name, stack)] = [
            (name, part)
            for name, part in self.body.named_children()
            if isinstance(part, nn.ModuleList) and layers[0] in part
        ]
        setattr(self.body, name, stack[:layer])
        for part, parameter in self.body.named_parameters():
            parameter.requires_grad_(LORA in part)
        self.is_trained = any(parameter.requires_grad for parameter in self.body.parameters())
        self.train()
        self._read: list[Tensor] = []
        layers[layer - 1].register_forward_hook(self._keep)

    def num_read(self, passage: int, question: int) -> int:
        """Return the number of tokens that are read for a passage and a question of given sizes."""
        return passage + question + (self.bos is not None)

    def _keep(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._read.append(output[0] if isinstance(output, tuple) else output)

    def train(self, mode: bool = True) -> PassageReader:
        """Leave a frozen LM in evaluation mode, so that its dropout is off."""
        super().train(mode)
        self.body.train(mode and self.is_trained)
        return self

    def forward(self, node_ids: Tensor, sizes: Tensor, questions: Tensor) -> Tensor:
        """Compute the states of all nodes of a batch, [N, D], in the LM's type.

        Args:
            node_ids: token ids, segment after segment, [N].
            sizes: number of nodes of each segment, [S].
            questions: index of each example's question, its last segment, [B].

        Raises:
            ValueError: the folder cannot be read or written.
        """
        segments = list(node_ids.split(sizes.tolist()))
        states, first = [], 0
        with self._computing():
            for last in questions.tolist():
                states.append(self._example(segments[first:last], segments[last]))
                first = last + 1
            return torch.cat(states)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute with gradients for LoRA, whose weights are float32, else without."""
        weight: Tensor = next(self.body.parameters())
        low = self.is_trained and weight.dtype == torch.bfloat16
        with (
            torch.set_grad_enabled(self.is_trained and torch.is_grad_enabled()),
            torch.autocast(weight.device.type, torch.bfloat16, enabled=low),
        ):
            yield

    def _example(self, passages: Sequence[Tensor], question: Tensor) -> Tensor:
        """Return the states of an example, from the folder if it has them."""
        if self.folder is None:
            return self._compute(passages, question)
        digest = hashlib.sha256()
        for part in (*passages, question):
            digest.update(len(part).to_bytes(8, "little") + part.cpu().numpy().tobytes())
        path = self.folder / f"{digest.hexdigest()[:32]}.safetensors"
        try:
            if path.exists():
                states: Tensor = load_file(path)["states"].to(question.device)
                return states
            states = self._compute(passages, question)
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=self.folder, suffix=".part")
            os.close(descriptor)
            save_file({"states": states.cpu()}, partial)
            os.replace(partial, path)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"config field training.state_folder: {path}: {error}") from error
        return states

    def _compute(self, passages: Sequence[Tensor], question: Tensor) -> Tensor:
        bos = [] if self.bos is None else [self.bos]
        prefix = torch.cat([question.new_tensor(bos), question])
        weight: Tensor = next(self.body.parameters())
        states = weight.new_empty(sum(map(len, passages)) + len(question), self.width)
        cache = DynamicCache(config=self.config)
        if len(prefix):
            read = self._states(prefix[None], cache)[0]
            states[len(states) - len(question) :] = read[len(prefix) - len(question) :]
        order = sorted(range(len(passages)), key=lambda i: len(passages[i]))
        starts = torch.tensor([0, *map(len, passages)]).cumsum(0).tolist()
        for group in _groups(order, passages):
            padded = pad_sequence([passages[i] for i in group], batch_first=True)
            given = cache if len(prefix) else None
            if self.recomputes and torch.is_grad_enabled():
                read = checkpoint(self._after, padded, given, use_reentrant=False)
            else:
                read = self._after(padded, given)
            for row, index in enumerate(group):
                size = len(passages[index])
                states[starts[index] : starts[index] + size] = read[row, :size]
        return states

    def _after(self, padded: Tensor, cache: Any) -> Tensor:
        """Return the states of passages after the question whose cache is given, if there is one.

        Padding on the right needs no mask: no token of a causal LM attends to it.
        """
        rows = torch.zeros(len(padded), dtype=torch.long, device=padded.device)
        own = DynamicCache(config=self.config) if cache is None else rows_of(cache, rows)
        return self._states(padded, own)

    def _states(self, ids: Tensor, cache: Any) -> Tensor:
        self._read.clear()
        self.body(input_ids=ids, past_key_values=cache, use_cache=True)  # _keep gets the states
        states: Tensor = self._read.pop()
        return states


def _groups(order: Sequence[int], passages: Sequence[Tensor]) -> list[list[int]]:
    """Divide passages, shortest first, into groups that fit into one forward pass."""
    groups: list[list[int]] = []
    for index in order:
        fits = groups and (len(groups[-1]) + 1) * len(passages[index]) <= TOKENS_AT_ONCE
        if fits:
            groups[-1].append(index)
        elif len(passages[index]):
            groups.append([index])
    return groups
