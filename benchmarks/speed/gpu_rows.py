"""The rows that ``gpu.py`` measures, most important first, each with its time limit and aims."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from turngraph.benchmarks.speed import gpu_answers, gpu_many, gpu_training
from turngraph.benchmarks.speed.gpu_bench import CONVMIX, CONVMIX_READER, Bench, Values
from turngraph.benchmarks.speed.gpu_training import estimate_row, train_row

Measure = Callable[[Bench], Values]


class Aim(NamedTuple):
    """What a value is to be: at least, or at most, a number."""

    value: str
    least: float | None = None
    most: float | None = None

    def line(self, values: Values) -> str:
        """Return the aim in words, and whether it is reached."""
        limit = f"at least {self.least:g}" if self.most is None else f"at most {self.most:g}"
        found = values.get(self.value)
        if found is None:
            return f"{self.value}: {limit}, not measured"
        assert self.most is not None or self.least is not None, self.value
        is_reached = found <= self.most if self.most is not None else found >= (self.least or 0)
        return f"{self.value}: {limit}, {'reached' if is_reached else 'missed'}"


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        name: its part, from a to h, and what it is.
        seconds: time limit.
        measure: returns its values; a ``RowError`` says why it is left out.
        aims: of its values.
        needs: a library that it needs, and that may not be there.
    """

    name: str
    seconds: float
    measure: Measure
    aims: tuple[Aim, ...] = ()
    needs: str = ""

    def limit(self, tiny: bool) -> float:
        """Return the time limit; ten times that on a CPU, which may have other work."""
        return self.seconds * (10 if tiny else 1)

    @property
    def missing(self) -> str:
        """The library that is not installed; empty if all are."""
        is_there = not self.needs or importlib.util.find_spec(self.needs) is not None
        return "" if is_there else self.needs


ENCODER, ESTIMATE = Aim("encoder_share", most=0.05), Aim("error", most=0.2)
SHARE, PACKED = Aim("share", least=0.45), Aim("share", least=0.6)
TEXT, RECOMPUTED = "--model.evidence=text", "--model.gradient_checkpointing=true"


def packed(evidence: str, attention: str) -> Measure:
    """Return what measures the largest batch, packed, by one kind of attention."""
    kind = f"--model.evidence={evidence}", f"--model.attn_implementation={attention}"
    return gpu_training.largest_row(*kind, "--training.packing=true")


ROWS = (
    Row("a ceilings", 30, gpu_training.ceilings),
    Row("b graph, 1 x 4", 60, train_row(), (SHARE, ENCODER)),
    Row("b text, 1 x 4", 45, train_row(TEXT)),
    Row("b reader, 1 x 4", 60, train_row(sizes=CONVMIX_READER)),
    Row("b graph, 1 x 4, recomputed", 45, train_row(RECOMPUTED)),
    Row("b text, 1 x 4, recomputed", 45, train_row(TEXT, RECOMPUTED)),
    Row("b reader, 1 x 4, recomputed", 45, train_row(RECOMPUTED, sizes=CONVMIX_READER)),
    Row("b graph, packed", 75, packed("graph", "sdpa"), (PACKED, ENCODER)),
    Row("b text, packed", 60, packed("text", "sdpa")),
    Row("b graph, packed, flex_attention", 90, packed("graph", "flex_attention"), (PACKED,)),
    Row(
        "b graph, packed, flash_attention_2",
        60,
        packed("graph", "flash_attention_2"),
        (PACKED,),
        "flash_attn",
    ),
    Row("b reader, largest batch", 75, gpu_training.largest_row(sizes=CONVMIX_READER)),
    Row("b profile of graph, 1 x 4", 45, partial(gpu_training.profiled, sizes=CONVMIX)),
    Row("b profile of reader, 1 x 4", 45, partial(gpu_training.profiled, sizes=CONVMIX_READER)),
    Row("c ours, text, rank 8", 60, gpu_training.peer_row("text")),
    Row("c TRL, text, rank 8", 75, gpu_training.peer_row("trl"), needs="trl"),
    Row("c ours, graph, rank 8", 60, gpu_training.peer_row("graph")),
    Row("c GRetriever, rank 8", 90, gpu_training.peer_row("pyg")),
    Row("d prefill and decode", 90, gpu_answers.decode, (Aim("decode_share", least=0.7),)),
    Row("d 256 questions", 90, gpu_answers.questions),
    Row("e sqa, eager", 30, gpu_training.sqa("eager")),
    Row("e sqa, compiled", 90, gpu_training.sqa("compiled")),
    Row("e sqa, CUDA graphs", 90, gpu_training.sqa("graphs")),
    Row("f parity", 60, gpu_training.parity, (Aim("bfloat16_error", most=2e-3),)),
    Row("f 4-bit", 90, gpu_training.four_bit, needs="bitsandbytes"),
    Row("g reader, 300 steps", 120, gpu_training.reader_steps),
    Row("b graph, 1 x 4, compiled", 120, train_row("--model.compile=true"), (SHARE,)),
    Row("b estimate, graph", 60, estimate_row("b graph, 1 x 4", CONVMIX), (ESTIMATE,)),
    Row("b estimate, reader", 60, estimate_row("b reader, 1 x 4", CONVMIX_READER), (ESTIMATE,)),
    Row("h two GPUs or more", 180, gpu_many.several, (Aim("loss_error", most=1e-3),)),
)
"""In the order in which they are measured."""

RATIOS = (
    ("c ours, text, rank 8", "c TRL, text, rank 8", "tokens_s", 1.3),
    ("c ours, graph, rank 8", "c GRetriever, rank 8", "examples_s", 3.0),
)
"""Rows that are compared: ours, a peer's, the value, and the least ratio that is aimed at."""
