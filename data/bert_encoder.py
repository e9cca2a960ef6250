"""Sentence encoder of BERT's architecture in NumPy, for few texts at once.

sentence-transformers takes five seconds to import, and torch one. A question needs the vectors of a
handful of texts, which NumPy computes from the same files in milliseconds: ``memory ask`` takes 1 s
in place of 9 s. ONNX Runtime with tokenizers would take 0.65 of the CPU time of this file (medians
of 9 pairs: 0.53 s and 0.81 s, from the start to two vectors, the same to 1e-7), but it reads an
``.onnx`` file, which the packaged encoder lacks and which only torch and onnx together can export.

Shapes: B texts, L tokens of each, T tokens of all texts, D width of the encoder, H heads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.configs.models import local_folder
from turngraph.configs.user_error import UserError

Weights = Mapping[str, np.ndarray]
Place = tuple[slice, int, int]
"""Rows of the texts of one length among all tokens, the number of these texts, their length."""
MODULES = ["Transformer", "Pooling", "Normalize"]
PLAIN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Values that the config of a supported encoder has, or leaves out."""
MAX_TOKENS = 4096
"""Tokens that are computed at once: their largest array has 1536 floats a token."""
GELU_PART = 1 << 14
"""Values of GELU that are computed at once."""
ERFC = [np.float32(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]
"""Coefficients of the polynomial of ``_gelu``, the highest power first."""
_LOADED: dict[Path, BertEncoder] = {}
"""Encoders that were loaded by their names, by their folders."""


def light_encoder(name: str) -> BertEncoder | None:
    """Return the encoder of a name, as in a config, which is loaded once.

    None: it is of another kind than ``bert_encoder`` takes, or has no folder on this machine.
    """
    if (folder := local_folder(name)) is None:
        return None
    if folder not in _LOADED and (encoder := bert_encoder(folder)) is not None:
        _LOADED[folder] = encoder
    return _LOADED.get(folder)


def bert_encoder(folder: Path) -> BertEncoder | None:
    """Return the encoder in a folder of sentence-transformers; None if it is of another kind.

    Supported are BERTs with mean pooling over all tokens, in float32 safetensors.

    Args:
        folder: folder with ``modules.json``, ``config.json``, ``tokenizer.json``,
            ``model.safetensors``.
    """
    if not _is_plain(folder):
        return None
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        names = set(file.keys())
        if "embeddings.word_embeddings.weight" not in names:  # a model whose names have a prefix
            return None
        if any(file.get_slice(name).get_dtype() not in ("F32", "I64") for name in names):
            return None
        weights = {name: file.get_tensor(name) for name in names}
    return BertEncoder(folder, weights)


def _is_plain(folder: Path) -> bool:
    files = ("modules.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json")
    if not all((folder / name).is_file() for name in files):
        return False
    modules = _json(folder / "modules.json")
    if [module["type"].rpartition(".")[2] for module in modules] != MODULES:
        return False
    if not all(module["type"].startswith("sentence_transformers.") for module in modules):
        return False  # code of the model's own, which is not run here
    pooling = _json(folder / modules[1]["path"] / "config.json")
    modes = [name for name, value in pooling.items() if "pooling_mode" in name and value]
    config = _json(folder / "config.json")
    return (
        (modes == ["pooling_mode_mean_tokens"] or pooling.get("pooling_mode") == "mean")
        and all(config.get(name, value) == value for name, value in PLAIN.items())
        and {"num_hidden_layers", "num_attention_heads"} <= set(config)
        and not _settings(folder).get("default_prompt_name")
    )


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "config_sentence_transformers.json"
    return _json(path) if path.is_file() else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None


class BertEncoder:
    """Function from texts to unit vectors, float32 [len(texts), D].

    Args:
        folder: folder of tokenizer and settings.
        weights: tensors by the names of ``transformers.BertModel``.
    """

    def __init__(self, folder: Path, weights: Weights) -> None:
        from tokenizers import Tokenizer

        config = _json(folder / "config.json")
        sentences = _json(folder / "sentence_bert_config.json")
        self.folder, self.weights = folder, weights
        self.num_layers: int = config["num_hidden_layers"]
        self.num_heads: int = config["num_attention_heads"]
        self.epsilon: float = config.get("layer_norm_eps", 1e-12)
        self.lower: bool = sentences.get("do_lower_case", False)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(
            sentences.get("max_seq_length") or config["max_position_embeddings"]
        )

    def changed(self, changes: Weights) -> BertEncoder:
        """Return an encoder with something added to some weights; the others are shared."""
        added = {name: self.weights[name] + change for name, change in changes.items()}
        return BertEncoder(self.folder, {**self.weights, **added})

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts in their order."""
        read = [text.strip() for text in texts]
        read = [text.lower() for text in read] if self.lower else read
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(read)]
        order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
        vectors = np.empty((len(texts), self._width), np.float32)
        size = max(MAX_TOKENS // max(map(len, tokens), default=1), 1)
        for begin in range(0, len(order), size):
            batch = order[begin : begin + size]
            vectors[batch] = self._vectors([tokens[index] for index in batch])
        return vectors

    @property
    def _width(self) -> int:
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> np.ndarray:
        """Return unit vectors [B, D] of token ids, sorted by length.

        All tokens are the rows of one matrix, so that each weight is read once for all texts; only
        attention takes texts of equal length together, as without padding there is no mask.
        """
        places: list[Place] = []
        begin = 0
        for length, same in groupby(map(len, tokens)):
            size = len(list(same))
            places.append((slice(begin, begin + size * length), size, length))
            begin += size * length
        states = self._embedded(tokens)  # T D
        for layer in range(self.num_layers):
            states = self._layer(states, f"encoder.layer.{layer}.", places)
        mean = np.concatenate(
            [states[rows].reshape(size, length, -1).mean(axis=1) for rows, size, length in places]
        )
        vectors: np.ndarray = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return vectors

    def _embedded(self, tokens: Sequence[Sequence[int]]) -> np.ndarray:
        words, positions, types = (
            self.weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        at = np.concatenate([np.arange(len(ids)) for ids in tokens])
        states = words[np.concatenate(tokens)] + types[0] + positions[at]
        return self._norm(states, "embeddings.LayerNorm.")

    def _layer(self, states: np.ndarray, prefix: str, places: Sequence[Place]) -> np.ndarray:
        """Return the states after one layer: attention, then the feed-forward network."""
        mixed = self._attention(states, prefix, places)
        attended = self._linear(mixed, f"{prefix}attention.output.dense.")
        states = self._norm(states + attended, f"{prefix}attention.output.LayerNorm.")
        inner = _gelu(self._linear(states, f"{prefix}intermediate.dense."))
        outer = self._linear(inner, f"{prefix}output.dense.")
        return self._norm(states + outer, f"{prefix}output.LayerNorm.")

    def _attention(self, states: np.ndarray, prefix: str, places: Sequence[Place]) -> np.ndarray:
        projected = [
            self._linear(states, f"{prefix}attention.self.{name}.")
            for name in ("query", "key", "value")
        ]
        mixed = np.empty_like(states)  # T D
        for rows, size, length in places:
            queries, keys, values = (
                each[rows].reshape(size, length, self.num_heads, -1).transpose(0, 2, 1, 3)
                for each in projected
            )  # B H L D/H
            scores = queries @ keys.swapaxes(2, 3) / np.float32(np.sqrt(queries.shape[-1]))
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))  # B H L L
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed[rows] = (scores @ values).transpose(0, 2, 1, 3).reshape(size * length, -1)
        return mixed

    def _linear(self, states: np.ndarray, prefix: str) -> np.ndarray:
        product: np.ndarray = states @ self.weights[f"{prefix}weight"].T
        return product + self.weights[f"{prefix}bias"]

    def _norm(self, states: np.ndarray, prefix: str) -> np.ndarray:
        centred = states - states.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        scaled: np.ndarray = centred / np.sqrt(variance + np.float32(self.epsilon))
        return scaled * self.weights[f"{prefix}weight"] + self.weights[f"{prefix}bias"]


def _gelu(values: np.ndarray) -> np.ndarray:
    """Return x Phi(x) of each value x, with an error below 4e-7.

    The tail of the normal distribution is formula 7.1.26 of Abramowitz and Stegun (1964), which
    takes a third of the time of SciPy's erf. ``GELU_PART`` values fit into the processor's cache.
    """
    activated = np.empty_like(values)
    flat, out = values.reshape(-1), activated.reshape(-1)
    for begin in range(0, flat.size, GELU_PART):
        part = flat[begin : begin + GELU_PART]
        size = np.abs(part)
        scaled = size * np.float32(0.5**0.5)
        share = 1 / (1 + np.float32(0.3275911) * scaled)
        tail = np.full_like(share, ERFC[0])  # by Horner's rule
        for factor in ERFC[1:]:
            tail *= share
            tail += factor
        tail *= share * np.exp(-scaled * scaled) * np.float32(0.5)
        out[begin : begin + GELU_PART] = np.maximum(part, 0) - size * tail
    return activated
