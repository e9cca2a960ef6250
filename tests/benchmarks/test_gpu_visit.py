"""What is measured in one visit to a GPU can be run, goes on after a stop, and counts by hand."""

from __future__ import annotations

import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from turngraph.benchmarks.speed import gpu, gpu_many, gpu_rows
from turngraph.benchmarks.speed.gpu_bench import CONVMIX, SQA, Bench, RowError
from turngraph.benchmarks.speed.gpu_rows import ROWS, Row
from turngraph.configs.user_error import UserError
from turngraph.model.known_shapes import SHAPES

pytestmark = pytest.mark.usefixtures("fresh_accelerator")
LEFT_OUT = {
    "flex_attention": "no gradients on a CPU",
    "compiled": "compiling takes too long",
    "CUDA graphs": "compiling takes too long",
    "estimate": "on a GPU",
    "flash_attention_2": "flash_attn is not installed",
    "4-bit": "bitsandbytes is not installed",
}
"""Part of a row's name -> why it is left out with the tiny model on a CPU, unless it is there."""
LAUNCHED = "h two GPUs or more"


def options(folder: Path, *more: str) -> Namespace:
    return gpu.parse(["--tiny", "--output", str(folder), *more])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cpu"), True, 0, str(tmp_path))


def test_every_row_runs_with_a_tiny_model(tmp_path: Path) -> None:
    bench = Bench(torch.device("cpu"), True, 0, str(tmp_path))
    found = bench.known
    for row in ROWS:
        if row.name != LAUNCHED:
            found[row.name] = gpu.values_of(row, bench)
    assert not [values for values in found.values() if "error" in values]
    for name, values in found.items():
        reason = next((why for part, why in LEFT_OUT.items() if part in name), "")
        if "skipped" in values:
            assert reason, name
            assert reason in values["skipped"]
        elif name[0] in "bce" and "profile" not in name:
            assert values["examples_s"] > 0
            assert math.isfinite(values["loss"])
    for name in ("b graph, 1 x 4", "b reader, 1 x 4"):
        assert found[name]["share"] > 0
        assert found[name]["encoder_share"] > 0
    assert found["d prefill and decode"]["decode_tokens_s"] > 0
    assert found["f parity"]["float32_error"] < 1e-4
    for kind in ("graph", "reader"):
        assert len(found[f"b profile of {kind}, 1 x 4"]["kernels"]) == 3
    assert found["b text, packed"]["batch"] == 2
    assert found["g reader, 300 steps"]["steps"] == 2
    report = gpu.markdown(found, {"seed": 0})
    assert report.count("\n| ") == 1 + len(ROWS) + len(gpu_rows.RATIOS)
    assert "c ours, text, rank 8 / c TRL, text, rank 8 | " in report
    assert report.count("not measured yet") == 1


def test_examples_have_convmixs_sizes_and_the_seed_makes_them(tmp_path: Path) -> None:
    bench = Bench(torch.device("cpu"), False, 3, str(tmp_path))
    first, again = (bench.examples(CONVMIX, 4) for _ in range(2))
    assert [e.graph.node_ids.tolist() for e in first] == [e.graph.node_ids.tolist() for e in again]
    for example in first:
        nodes = len(example.graph.node_ids)
        assert 1200 <= nodes <= 2000
        assert example.graph.edge_index.shape[1] > 1.1 * nodes  # chains, and entities
        assert len(example.prefix_ids) + len(example.suffix_ids) == pytest.approx(200, abs=20)
        assert len(example.target_ids) == pytest.approx(8, abs=2)
    assert len({example.num_tokens for example in first}) > 1
    assert bench.tokenizer.vocab_size < min(shape["vocab_size"] for shape in SHAPES.values())
    assert sum(e.num_tokens for e in bench.examples(SQA, 4)) / 4 == pytest.approx(600, abs=100)


class Script:
    """Plays processes that measure; each start takes the next list of values, None: it dies."""

    def __init__(self, *starts: list[Any]) -> None:
        self.starts, self.given, self.stopped = list(starts), list[list[str]](), 0

    def __call__(self, args: Namespace) -> Script:
        self.given.append([])
        self.values, self.has_ended = self.starts.pop(0), False
        return self

    def measure(self, name: str, known: dict[str, Any], seconds: float) -> Any:
        self.given[-1].append(name)
        values = self.values.pop(0)
        self.has_ended = values is None
        return values or {"error": "the process ended"}

    def stop(self) -> None:
        self.stopped += 1


A, B, C = (row.name for row in ROWS[:3])


def test_a_row_that_kills_its_process_costs_itself_alone(tmp_path: Path) -> None:
    rows, args = gpu.Rows(tmp_path / "rows.jsonl"), options(tmp_path)
    args.names = [A, B, C]
    script = Script([{"x": 1.0}, None], [{"z": 3.0}])
    gpu.measure(args, rows, script)  # type: ignore[arg-type]
    assert script.given == [[A, B], [C]]
    assert rows.found == {A: {"x": 1.0}, B: {"error": "the process ended"}, C: {"z": 3.0}}
    again = gpu.Rows(tmp_path / "rows.jsonl")
    assert again.found == rows.found
    assert again.order([A, B, C]) == [B]
    assert script.stopped == 1


def test_a_process_that_hangs_or_has_died_is_an_error_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "work", found_or_hangs)
    worker = gpu.Worker(options(tmp_path))
    assert worker.measure(A, {}, 60) == {"found": A}
    assert not worker.has_ended
    assert worker.measure("hangs", {}, 0.5) == {"error": "stopped after 0.5 s"}
    assert worker.has_ended
    assert worker.measure(A, {}, 60) == {"error": "the process ended with code -9"}


def found_or_hangs(args: Namespace, rows: Any) -> None:
    rows.send(True)
    while True:
        name = rows.recv()[0]
        time.sleep(600 if name == "hangs" else 0)
        rows.send({"found": name})


def test_a_visit_goes_on_and_a_cut_line_is_measured_again(tmp_path: Path) -> None:
    rows = gpu.Rows(tmp_path / "rows.jsonl")
    rows.add(A, {"x": 1.0})
    rows.add(C, {"error": "E"})
    with rows.path.open("a", encoding="utf-8") as file:
        file.write('{"row": "' + B)
    rows = gpu.Rows(rows.path)
    assert rows.order([A, B, C]) == [B, C]
    args = options(tmp_path)
    args.names = [A, B, C]
    script = Script([{"y": 2.0}, {"y": 3.0}])
    gpu.measure(args, rows, script)  # type: ignore[arg-type]
    assert script.given == [[B, C]]
    assert gpu.Rows(rows.path).found == {A: {"x": 1.0}, B: {"y": 2.0}, C: {"y": 3.0}}
    gpu.measure(args, rows, Script())  # type: ignore[arg-type]  # nothing is left


def test_a_row_that_fails_is_an_error_and_what_is_missing_is_said(bench: Bench) -> None:
    def broken(_: Bench) -> dict[str, Any]:
        raise RuntimeError("no such kernel\nmore")

    def refused(_: Bench) -> dict[str, Any]:
        raise RowError("not here")

    assert gpu.values_of(Row("x", 1, broken), bench)["error"] == "RuntimeError: no such kernel"
    assert gpu.values_of(Row("x", 1, refused), bench) == {"skipped": "not here"}
    missing = Row("x", 1, refused, needs="no_such_library")
    assert gpu.values_of(missing, bench) == {"skipped": "no_such_library is not installed"}


def test_without_a_gpu_only_the_tiny_model_is_measured(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="torch finds no GPU"):
        gpu.parse(["--output", str(tmp_path)])
    with pytest.raises(UserError, match="option --rows"):
        options(tmp_path, "--rows", "z")
    assert options(tmp_path, "--rows", "a", "h").names == [A, LAUNCHED]


def test_strategies_are_compared_by_their_losses(bench: Bench) -> None:
    found = {
        "ddp": {"tokens_s": 1.0, "losses": [2.0, 1.0]},
        "fsdp2": {"tokens_s": 3.0, "losses": [2.0, 1.001]},
    }
    values = gpu_many.compare(found)
    assert values.pop("loss_error") == pytest.approx(0.001, rel=0.01)
    assert values == {"ddp_tokens_s": 1.0, "fsdp2_tokens_s": 3.0}
    trained = gpu_many.trained(bench, 1)
    assert len(trained["losses"]) == 3
    assert trained["tokens_s"] > 0


@pytest.mark.slow
def test_two_processes_train_by_both_strategies_and_have_equal_losses(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    gpu.main(["--tiny", "--output", str(tmp_path), "--rows", "h", "--minutes", "9"])
    (line,) = rows.read_text(encoding="utf-8").splitlines()
    values = json.loads(line)
    assert values["loss_error"] < 1e-3
    assert values["ddp_tokens_s"] > 0
    assert values["fsdp2_tokens_s"] > 0
    assert LAUNCHED in (tmp_path / "report.md").read_text(encoding="utf-8")
