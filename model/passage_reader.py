"""Computes node features by the first layers of the LM, which read the question first.

Shapes: N nodes, S segments (passages, and the question of each example), D LM width.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import LORA, decoder_layers
from turngraph.model.generation import rows_of

TOKENS_AT_ONCE = 512
"""Tokens of a forward pass over passages of similar length on a CPU, padding included: more of them
would have more padding."""
TOKENS_AT_ONCE_ON_GPU = 2**14
"""The same on a GPU, where a short pass takes as long as the launches of its kernels; not where
activations are computed again, which is to save memory."""

Asked = tuple[Sequence[Tensor], Tensor]
"""Token ids of an example's passages, and of its question."""
Place = tuple[int, int]
"""Index of an example, and of a segment in it."""


class PassageReader(nn.Module):
    """The first layers of an LM, which read each passage by itself after the question.

    A passage's states are those of the row ``[bos] question passage``, so that they depend on the
    question. The question's own states depend on no passage. A CPU reads the question once and then
    the passages; a GPU reads whole rows, of all examples of a batch together.
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
        UserError: the LM has fewer layers.
    """

    def __init__(self, base: PreTrainedModel, layer: int) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.recomputes = False
        layers = decoder_layers(base)
        if layer > len(layers):
            raise UserError(
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
        self._read: dict[int, Tensor] = {}  # by thread: a server's answer at the same time
        layers[layer - 1].register_forward_hook(partial(_keep, self._read))

    def share_weights(self, lm: PreTrainedModel) -> None:
        """Use the frozen weights of an LM in place of equal ones, so that memory has them once.

        Args:
            lm: an LM with the same weights, with or without LoRA, on its device; its weights must
                not change afterwards.
        """
        theirs = _without_lora(lm.get_decoder())
        for name, parameter in _without_lora(self.body).items():
            parameter.data = theirs[name].data

    def num_read(self, passage: int, question: int) -> int:
        """Return the number of tokens that are read for a passage and a question of given sizes."""
        return passage + question + (self.bos is not None)

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
            UserError: the folder cannot be read or written.
        """
        segments = list(node_ids.split(sizes.tolist()))
        asked, first = list[Asked](), 0
        for last in questions.tolist():
            asked.append((segments[first:last], segments[last]))
            first = last + 1
        with self._computing():
            return torch.cat(self._kept(asked) if self.folder else self._compute(asked))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute with gradients for LoRA, whose weights are float32, else without."""
        weight = self._weight
        low = self.is_trained and weight.dtype == torch.bfloat16
        with (
            torch.set_grad_enabled(self.is_trained and torch.is_grad_enabled()),
            torch.autocast(weight.device.type, torch.bfloat16, enabled=low),
        ):
            yield

    def _kept(self, asked: Sequence[Asked]) -> list[Tensor]:
        """Return the states of examples, those that the folder does not have computed together."""
        assert self.folder is not None
        paths = [self.folder / f"{_digest(*one)}.safetensors" for one in asked]
        path = self.folder
        try:
            missing = dict.fromkeys(path for path in paths if not path.exists())
            computed = self._compute([asked[paths.index(path)] for path in missing])
            states = dict(zip(missing, computed, strict=True))
            for path in paths:
                if path not in states:
                    states[path] = load_file(path)["states"].to(asked[0][1].device)
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in missing:
                descriptor, partial = tempfile.mkstemp(dir=self.folder, suffix=".part")
                os.close(descriptor)
                save_file({"states": states[path].cpu()}, partial)
                os.replace(partial, path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"config field training.state_folder: {path}: {error}") from error
        return [states[path] for path in paths]

    def _compute(self, asked: Sequence[Asked]) -> list[Tensor]:
        """Return the states of examples, each [its nodes, D].

        A GPU reads whole rows. Rows that continue a cache take more passes and a mask, with which
        torch 2.11 computed gradients that were not numbers (twice in 900 steps on an H100).
        """
        if len(asked) > 1 and not self.on_gpu:
            return [states for one in asked for states in self._compute([one])]
        rows: dict[Place, Tensor] = {}  # token ids to read
        skipped: dict[Place, int] = {}  # tokens of a row before the segment's
        places: dict[Place, Tensor] = {}  # of each segment's states among all that are read
        reads: list[Tensor] = []  # [rows, columns, D]
        cache, total = None, 0
        for example, (passages, question) in enumerate(asked):
            start = [] if self.bos is None else [self.bos]
            prefix = torch.cat([question.new_tensor(start), question])
            own = (example, len(passages))
            if self.on_gpu:
                rows[own], skipped[own] = prefix, len(prefix) - len(question)
            elif len(prefix):
                cache, total = DynamicCache(config=self.config), len(prefix)
                reads.append(self._states(prefix[None], cache))
                places[own] = torch.arange(total - len(question), total)
            for index, passage in enumerate(passages):
                if len(passage):
                    before = prefix if self.on_gpu else prefix[:0]
                    rows[example, index] = torch.cat([before, passage])
                    skipped[example, index] = len(before)
        few = not self.on_gpu or self.recomputes
        for group in _groups(rows, TOKENS_AT_ONCE if few else TOKENS_AT_ONCE_ON_GPU):
            padded = pad_sequence([rows[place] for place in group], batch_first=True)
            if self.recomputes and torch.is_grad_enabled():
                read = checkpoint(self._after, padded, cache, use_reentrant=False)
            else:
                read = self._after(padded, cache)
            reads.append(read)
            for place in group:
                places[place] = torch.arange(total + skipped[place], total + len(rows[place]))
                total += read.shape[1]
        flat = torch.cat([read.flatten(0, 1) for read in reads]) if reads else self._no_states()
        none, found = torch.arange(0), []
        for example, (passages, _) in enumerate(asked):
            parts = [places.get((example, index), none) for index in range(len(passages) + 1)]
            found.append(flat[torch.cat(parts).to(flat.device)])
        return found

    @property
    def on_gpu(self) -> bool:
        """Whether the layers are on another device than the CPU."""
        return self._weight.device.type != "cpu"

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = next(self.body.parameters())
        return weight

    def _no_states(self) -> Tensor:
        return self._weight.new_empty(0, self.width)

    def _after(self, padded: Tensor, cache: Any) -> Tensor:
        """Return the states of rows after the question whose cache is given, if there is one.

        Padding on the right needs no mask: no token of a causal LM attends to it.
        """
        if cache is None:
            return self._states(padded, None)
        rows = torch.zeros(len(padded), dtype=torch.long, device=padded.device)
        return self._states(padded, rows_of(cache, rows))

    def _states(self, ids: Tensor, cache: Any) -> Tensor:
        self.body(input_ids=ids, past_key_values=cache, use_cache=cache is not None)
        return self._read.pop(get_ident())  # _keep has put them there


def _keep(read: dict[int, Tensor], module: nn.Module, inputs: Any, output: Any) -> None:
    """Keep a layer's output for the thread that computes it.

    As a hook it refers to no reader: one that refers to itself would stay in memory, with all its
    layers, until Python looks for such cycles.
    """
    read[get_ident()] = output[0] if isinstance(output, tuple) else output


def _without_lora(body: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of an LM's layers by the names that they have without LoRA."""
    weights = body.named_parameters()
    return {name.replace(".base_layer", ""): weight for name, weight in weights if LORA not in name}


def _digest(passages: Sequence[Tensor], question: Tensor) -> str:
    """Return a name for an example's states."""
    digest = hashlib.sha256()
    for part in (*passages, question):
        digest.update(len(part).to_bytes(8, "little") + part.cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _groups(rows: dict[Place, Tensor], most: int) -> list[list[Place]]:
    """Divide rows, shortest first, into groups whose padded tokens fit into one forward pass.

    Args:
        rows: token ids by place; empty ones are left out.
        most: tokens of a pass.
    """
    groups: list[list[Place]] = []
    for place in sorted(rows, key=lambda place: len(rows[place])):
        size = len(rows[place])
        if groups and (len(groups[-1]) + 1) * size <= most:
            groups[-1].append(place)
        elif size:
            groups.append([place])
    return groups
