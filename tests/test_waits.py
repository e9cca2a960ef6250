"""A training step waits for the device once: what a GPU computes is not looked at in between."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from turngraph import train
from turngraph.configs.schema import Config, DataConfig, ModelConfig, ScorerConfig, TrainingConfig
from turngraph.data.batches.collate import collate
from turngraph.data.cli import StopRequest
from turngraph.model.make_model import make_model
from turngraph.tests.scorer_examples import read_examples
from turngraph.tests.tiny import LORA, tiny_builder, tiny_examples
from turngraph.training.optimizer import make_optimizer
from turngraph.training.run import Run

ROOT = Path(__file__).resolve().parents[1]
WAITING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"),
    "bincount",
}
"""Operations of aten whose result, or its shape, the program has to know."""


class Waits(TorchDispatchMode):
    """Counts where a GPU would be waited for, by the file that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith(("index", "_index_put")) and any(
            isinstance(index, Tensor) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], (list, tuple)) else ())
        )
        has_size = kwargs and kwargs.get("output_size") is not None
        checks = name == "segment_reduce" and not (kwargs or {}).get("unsafe")
        if name in WAITING or by_mask or checks or (name == "repeat_interleave" and not has_size):
            self.note()
        return func(*args, **kwargs or {})

    def note(self) -> None:
        """Count the innermost file that is not torch's."""
        files = [frame.filename for frame in traceback.extract_stack()[:-2]]
        inner = [file for file in files if "/torch/" not in file and file != __file__]
        file = Path(inner[-1]) if inner else Path("backward")
        is_ours = file.is_relative_to(ROOT) and "site-packages" not in file.parts
        self.counts[str(file.relative_to(ROOT)) if is_ours else file.name] += 1


SCORER = ScorerConfig(num_layers=2, width=16, dropout=0.1, kept_nodes=24)


@pytest.mark.parametrize(
    ("evidence", "layer", "packed"),
    [
        *(("graph", 0, False), ("graph", 0, True)),
        *(("text", 0, False), ("text", 0, True)),
        ("graph", 1, False),
    ],
)
def test_a_step_waits_once_whatever_it_accumulates(
    evidence: Any,
    layer: int,
    packed: bool,
    tmp_path: Path,
    tiny_folder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = TrainingConfig(output=str(tmp_path / "run"), packing=packed)
    model = ModelConfig(
        tiny_folder, evidence, layer=layer, scorer=SCORER, lora=LORA, dtype="float32"
    )
    config = Config(data=DataConfig(train="given"), model=model, training=settings)
    run = Run(config, Accelerator(), make_model(model), tiny_builder(), [])
    run.optimizer = make_optimizer(run.model, settings)
    schedule: Any = SimpleNamespace(num_steps=9, step=lambda _: [[0, 1], [2], [3, 4], [5]])
    examples = read_examples(6) if layer else tiny_examples(6)
    waits, tolist = Waits(), Tensor.tolist

    def note(tensor: Tensor) -> Any:
        waits.note()
        return tolist(tensor)

    monkeypatch.setattr(Tensor, "tolist", note)
    monkeypatch.setattr(run, "step_values", lambda *_, **__: Counter())  # the log's wait for gates
    train.train_steps(run, examples, schedule, [0], StopRequest())  # packing is checked once
    with waits:
        waits.counts.clear()
        train.train_steps(run, examples, schedule, [1, 2], StopRequest())
    library = waits.counts.pop("masking_utils.py", 0)  # looks for packed examples
    assert waits.counts == {"train.py": 2}
    assert library <= 2 * 4


def test_batches_for_a_gpu_are_pinned_by_the_thread_that_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = read_examples(2)
    pinned: list[int] = []

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(id(tensor))
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    schedule: Any = SimpleNamespace(num_steps=1, step=lambda _: [[0, 1]])
    (step,) = train.steps(examples, schedule, [0], pinned=True)
    (batch,) = step.batches
    assert len(batch.input_ids) == 2, "not packed"
    assert batch.candidates is not None
    assert batch.reading is not None
    parts = [batch, batch.candidates, batch.reading, *batch.reading.segments]
    held = [value for part in parts for value in vars(part).values()]
    tensors = {id(value) for value in held if isinstance(value, Tensor)}
    assert set(pinned) == tensors
    moved: list[tuple[int, str, bool]] = []

    def move(tensor: Tensor, device: str, non_blocking: bool = False) -> Tensor:
        moved.append((id(tensor), device, non_blocking))
        return tensor

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "to", move)
        batch.to("cuda")
    assert set(moved) == {(tensor, "cuda", True) for tensor in tensors}
    assert replace(collate(examples, "right", True), candidates=None).pinned().candidates is None
