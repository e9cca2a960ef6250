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

from turngraph.benchmarks.speed import gpu, gpu_answers, gpu_many, gpu_paper, gpu_rows
from turngraph.benchmarks.speed.gpu_bench import CONVMIX, SQA, Bench, RowError, training_flops
from turngraph.benchmarks.speed.gpu_rows import ROWS, Aim, Row
from turngraph.configs.user_error import UserError
from turngraph.model.known_shapes import SHAPES
from turngraph.training.cluster_cost import Chip, Gpus
from turngraph.training.model_cost import Cost, Sizes
from turngraph.training.operations import LmShape, lm_shape

pytestmark = pytest.mark.usefixtures("fresh_accelerator")
LEFT_OUT = {
    "flex_attention": "no gradients on a CPU",
    "compiled": "compiling takes too long",
    "CUDA graphs": "compiling takes too long",
    "four at once": "only slow each other",
    "estimate": "on a GPU",
    "flash_attention_2": "flash_attn is not installed",
    "4-bit": "bitsandbytes is not installed",
}
"""Part of a row's name -> why it is left out with the tiny model on a CPU, unless it is there."""
LAUNCHED = "h two GPUs or more"


class Events(list[tuple[str, str, dict[str, Any]]]):
    """What a worker would send."""

    def send(self, event: tuple[str, str, dict[str, Any]]) -> None:
        self.append(event)


def options(folder: Path, *more: str) -> Namespace:
    return gpu.parse(["--tiny", "--output", str(folder), *more])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(torch.device("cpu"), True, 0, str(tmp_path))


def test_every_row_runs_with_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, events = [row.name for row in ROWS if row.name != LAUNCHED], Events()
    args = options(tmp_path)
    args.seconds = math.inf
    gpu.work(names, args, {}, events)  # type: ignore[arg-type]
    found = {name: values for kind, name, values in events if kind == "row"}
    assert list(found) == names
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
    """Plays a process that measures; each start takes the next list of events."""

    def __init__(self, *starts: list[Any]) -> None:
        self.starts, self.given, self.stopped = list(starts), list[list[str]](), 0

    def __call__(self, names: list[str], args: Namespace, known: dict[str, Any]) -> Script:
        self.given.append(list(names))
        self.events = self.starts.pop(0)
        return self

    def next(self, seconds: float) -> Any:
        if not self.events:
            raise EOFError
        return self.events.pop(0)

    def stop(self) -> int:
        self.stopped += 1
        return -11


def begun(name: str) -> tuple[str, str, dict[str, Any]]:
    return ("begin", name, {})


A, B, C = (row.name for row in ROWS[:3])


def test_a_row_that_hangs_or_kills_its_process_costs_itself_alone(tmp_path: Path) -> None:
    rows, args = gpu.Rows(tmp_path / "rows.jsonl"), options(tmp_path)
    args.names = [A, B, C]
    hangs = [begun(A), ("row", A, {"x": 1.0}), begun(B), None]
    script = Script(hangs, [begun(C)])
    gpu.measure(args, rows, script)  # type: ignore[arg-type]
    assert script.given == [[A, B, C], [C]]
    assert rows.found[A] == {"x": 1.0}
    assert rows.found[B]["error"] == "stopped after 600 s"
    assert rows.found[C]["error"] == "the process ended with code -11"
    again = gpu.Rows(tmp_path / "rows.jsonl")
    assert again.found == rows.found
    assert again.order([A, B, C]) == [B, C]
    assert script.stopped >= 2


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
    script = Script([begun(B), ("row", B, {"y": 2.0}), begun(C), ("row", C, {"y": 3.0})])
    gpu.measure(args, rows, script)  # type: ignore[arg-type]
    assert script.given == [[B, C]]
    assert gpu.Rows(rows.path).found == {A: {"x": 1.0}, B: {"y": 2.0}, C: {"y": 3.0}}
    gpu.measure(args, rows, Script())  # type: ignore[arg-type]  # nothing is left


def test_the_end_of_a_visit_leaves_the_row_at_hand_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rows, args = gpu.Rows(tmp_path / "rows.jsonl"), options(tmp_path, "--minutes", "1")
    args.names = [A, B]
    script = Script([begun(A), None])

    def late(seconds: float, following: Any = script.next) -> Any:
        event = following(seconds)
        now[0] += 0 if event else seconds  # nothing came in that time
        return event

    script.next = late  # type: ignore[method-assign]
    monkeypatch.setitem(gpu.BY_NAME, A, Row(A, 500, lambda bench: {}))
    gpu.measure(args, rows, script)  # type: ignore[arg-type]
    assert rows.found == {}
    with pytest.raises(UserError, match="ended with code -11"):
        gpu.measure(options(tmp_path), rows, Script([]))  # type: ignore[arg-type]


def test_a_row_that_fails_is_an_error_and_what_is_missing_is_said(bench: Bench) -> None:
    def broken(_: Bench) -> dict[str, Any]:
        raise RuntimeError("no such kernel\nmore")

    def refused(_: Bench) -> dict[str, Any]:
        raise RowError("not here")

    assert gpu.values_of(Row("x", 1, broken), bench)["error"] == "RuntimeError: no such kernel"
    assert gpu.values_of(Row("x", 1, refused), bench) == {"skipped": "not here"}
    missing = Row("x", 1, refused, needs="no_such_library")
    assert gpu.values_of(missing, bench) == {"skipped": "no_such_library is not installed"}


def test_aims_stand_beside_values() -> None:
    least, most = Aim("share", least=0.45), Aim("encoder_share", most=0.05)
    assert least.line({"share": 0.5}) == "share: at least 0.45, reached"
    assert least.line({"share": 0.4}) == "share: at least 0.45, missed"
    assert most.line({"encoder_share": 0.04}) == "encoder_share: at most 0.05, reached"
    assert most.line({}) == "encoder_share: at most 0.05, not measured"
    name = "b graph, 1 x 4"
    line = gpu.row_line(name, {"share": 0.5, "encoder_share": 0.25})
    assert line.startswith(f"{name}: share 0.5, encoder_share 0.25; share: at least 0.45, reached")
    assert "aim" not in gpu.row_line(name, {"error": "E"})
    ours, peer, value, ratio = gpu_rows.RATIOS[0]
    rates = {ours: {value: 3.0}, peer: {value: 2.0}}
    assert "| 1.50 | tokens_s: at least 1.3 times, reached |" in gpu.ratio_line(
        rates, ours, peer, value, ratio
    )
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_without_a_gpu_only_the_tiny_model_is_measured(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="torch finds no GPU"):
        gpu.parse(["--output", str(tmp_path)])
    with pytest.raises(UserError, match="option --rows"):
        options(tmp_path, "--rows", "z")
    assert options(tmp_path, "--rows", "a", "h").names == [A, LAUNCHED]


def test_work_by_hand(bench: Bench) -> None:
    examples = bench.examples(CONVMIX, 2)
    model = bench.model(bench.config(CONVMIX))
    shape = lm_shape(model.causal_lm)
    tokens = sum(e.num_tokens for e in examples)
    pairs = sum(e.num_tokens**2 for e in examples) / 2
    answers = sum(len(e.target_ids) for e in examples)
    of_lm = (4 * shape.body + 6 * shape.lora) * tokens + 14 * 2 * 32 * pairs
    encoder = 2 * (2 * (32 * 64 + 64) + 64 + 32) + 2
    nodes = sum(len(e.graph.node_ids) for e in examples)
    expected = of_lm + 4 * shape.head * answers + 6 * encoder * nodes
    assert training_flops(model, examples, again=False) == pytest.approx(expected)
    read = gpu_answers.decode_bytes(model, [10, 20], 4)
    cache = (30 + 4) * 2 * 2 * 16 * 4  # tokens, layers, keys and values of one head, float32
    assert read == pytest.approx(4 * (shape.body + shape.head + shape.lora) + cache)
    flops = gpu_answers.prefill_flops(model, [10])
    assert flops == 20 * (shape.body + shape.lora) + 4 * 2 * 32 * 50 + 2 * shape.head


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


def test_the_table_on_paper_by_hand() -> None:
    shape = LmShape(num_layers=2, width=32, body=1000, head=100, lora=10)
    cost = Cost(shape, 2000.0, 10, 0, per_token=8.0, per_node=0.0, fixed=0.0, launches=7)
    sizes = Sizes(10, 5, 5)
    row = gpu_paper.training("x", cost, sizes)
    assert row.num_bytes == 2 * 2000 + 2 * 8 * 20 + 28 * 10 / 4
    assert row.flops == cost.flops(sizes, False) == 4060 * 20 + 14 * 64 * 200 + 4 * 100 * 5
    four = gpu_paper.training("x", cost, sizes, True, together=4)
    assert four.num_bytes == 3 * 2000 / 4 + 2 * 8 * 20 + 28 * 10 / 4
    assert four.launches == 7 / 4
    chip = Chip(1e9, 1e9, 1e6, 1e6, 1e6)
    assert row.line(chip) == "| x, an example | 0.00 | 0.3 | 0.0 | 4.4 | 7 | 0.0 |"
    plain = gpu_paper.packed_plainly(cost, sizes, 4)
    assert plain.flops - row.flops == 14 * 64 * (4 * 400 - 200)
    peer = gpu_paper.all_logits("x", cost, sizes, 50)
    assert peer.flops - row.flops == 4 * 100 * 15
    assert peer.num_bytes - row.num_bytes == 12 * 50 * 20
    few = gpu_paper.exchange_lines(cost, Gpus("h100", 8))
    assert few[0].startswith("h DDP, 8 GPUs: 0.0 GB a step")


@pytest.mark.slow
def test_every_part_that_trains_or_answers_is_on_paper() -> None:
    rows, cost = gpu_paper.papers()
    assert {row.name[0] for row in rows} == set("abcdefg")
    assert all(row.num_bytes > 0 for row in rows)
    assert cost.encoder > 0
    reader = next(row for row in rows if row.name == "b reader")
    graph = next(row for row in rows if row.name == "b graph")
    assert reader.flops < 0.7 * graph.flops


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
