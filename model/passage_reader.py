"""Computes node features by the first layers of the frozen LM, which read the question first.

Shapes: N nodes, S segments (passages, and the question of each example), D LM width.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel

from turngraph.model.base_model import decoder_layers
from turngraph.model.generation import rows_of

TOKENS_AT_ONCE = 1024
"""Tokens of a forward pass over passages of similar length, padding included."""


class PassageReader(nn.Module):
    """The first layers of a frozen LM, which read each passage by itself after the question.

    A passage's states are those of the row ``[bos] question passage``, so that they depend on the
    question. The question's own states depend on no passage, and are computed once for all.

    Args:
        base: a causal LM; layers above ``layer`` and its head are released.
        layer: number of layers, from 1; the output of the last one is kept, before any norm.

    Attributes:
        folder: keeps the states of each example, so that they are computed once; None: they are
            computed at each call.
        max_tokens: the most tokens that a passage and its question may have; None: no limit.

    Raises:
        ValueError: the LM has fewer layers.
    """

    def __init__(self, base: PreTrainedModel, layer: int) -> None:
        super().__init__()
        self.folder: Path | None = None
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
        self.body.requires_grad_(False).eval()
        self.tuned = False
        if first := os.environ.get("TG_LORA"):
            from peft import LoraConfig, inject_adapter_in_model

            self.tuned = True
            settings = LoraConfig(
                r=32, lora_alpha=32, lora_dropout=0.0,
                target_modules=["q_proj", "k_proj", "v_proj"],
                layers_to_transform=list(range(int(first), layer)), layers_pattern=name,
            )
            inject_adapter_in_model(settings, self.body)
            for part, parameter in self.body.named_parameters():
                if "lora_" in part:
                    parameter.data = parameter.data.to(base.dtype)
        self._read: list[Tensor] = []
        layers[layer - 1].register_forward_hook(self._keep)

    def num_read(self, passage: int, question: int) -> int:
        """Return the number of tokens that are read for a passage and a question of given sizes."""
        return passage + question + (self.bos is not None)

    def _keep(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._read.append(output[0] if isinstance(output, tuple) else output)

    def train(self, mode: bool = True) -> PassageReader:
        """Leave the LM in evaluation mode: it is not trained, so its dropout is off."""
        super().train(mode)
        self.body.eval()
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
        grad = self.tuned and torch.is_grad_enabled()
        with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=self.tuned):
            for last in questions.tolist():
                states.append(self._example(segments[first:last], segments[last]))
                first = last + 1
            return torch.cat(states)

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
            # padding on the right needs no mask: no token of a causal LM attends to it
            rows = torch.zeros(len(group), dtype=torch.long, device=padded.device)
            own = rows_of(cache, rows) if len(prefix) else DynamicCache(config=self.config)
            read = self._states(padded, own)
            for row, index in enumerate(group):
                size = len(passages[index])
                states[starts[index] : starts[index] + size] = read[row, :size]
        return states

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
