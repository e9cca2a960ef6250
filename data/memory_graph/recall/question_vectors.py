"""Vectors of questions, by an encoder that was tuned to find the statements that answer them.

A question and its answer are worded differently: "Where do I live?" and "Took a flat on Dominick
Street". LoRA (Hu et al., arXiv 2106.09685) of the sentence encoder's weights, for questions alone,
brings a question's vector closer to those of the statements that answer it; statements keep their
vectors. ``question_training`` of the benchmarks trains the weights.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

import numpy as np

from turngraph.data.bert_encoder import BertEncoder, light_encoder
from turngraph.data.embedding import Embed, in_one_thread
from turngraph.data.memory_graph.recall.vectors import is_same

logger = logging.getLogger(__name__)
FILE = Path(__file__).with_name("questions.safetensors")
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the encoder whose weights were tuned."""


@cache
def shipped() -> dict[str, np.ndarray]:
    """Return the tensors that come with the package.

    ``probe`` [D] is the vector of ``vectors.PROBE`` by the encoder as it was. For each weight
    [M, N] of ``transformers.BertModel``, ``NAME.a`` [R, N] and ``NAME.b`` [M, R] are the factors of
    what is added to it.
    """
    from safetensors.numpy import load_file

    return {name: array.astype(np.float32) for name, array in load_file(FILE).items()}


def question_encoder(probe: np.ndarray) -> Embed | None:
    """Return the tuned encoder of questions; None: statements have vectors of another encoder.

    Args:
        probe: vector of ``vectors.PROBE`` by the encoder of the statements, [D].
    """
    if not is_same(probe, shipped()["probe"]):
        return None
    if (encoder := light_encoder(ENCODER)) is None:
        logger.warning(
            "%s is not on this machine under its name: questions are compared by the encoder of "
            "the statements, which finds fewer answers",
            ENCODER,
        )
        return None
    return _tuned(encoder)


@cache
def _tuned(encoder: BertEncoder) -> Embed:
    factors = shipped()
    names = [name.removesuffix(".a") for name in factors if name.endswith(".a")]
    changes = {name: factors[f"{name}.b"] @ factors[f"{name}.a"] for name in names}
    return in_one_thread(encoder.changed(changes))
