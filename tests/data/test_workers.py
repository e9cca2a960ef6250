"""Work in other processes: order, errors, logs, and that no process is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.workers import map_in_workers
from turngraph.tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
STARTS_WORKERS = """
import os, sys, time
from functools import partial
from pathlib import Path
from turngraph.data.workers import map_in_workers

def make_slowly(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

def work(made, task):
    return task

if __name__ == "__main__":
    list(map_in_workers(partial(make_slowly, sys.argv[1]), work, range(8), 2))
"""


def make(factor: int) -> int:
    if factor == 0:
        raise UserError("model 'none': not found")
    return factor


def work(factor: int, task: int) -> int:
    logging.getLogger("turngraph.data.prompt").warning("task %d", task)
    logging.getLogger("turngraph.data.prompt").info("not at this level")
    if task < 0:
        raise UserError(f"conversation {task}: wrong")
    if task > 99:
        os.kill(os.getpid(), signal.SIGKILL)
    return factor * task


def environment(_: int, name: str) -> Any:
    if name in signal.Signals.__members__:
        return signal.getsignal(signal.Signals[name])
    return os.environ.get(name)


@pytest.mark.traced_processes
def test_results_and_logs_come_in_the_order_of_the_tasks(caplog: pytest.LogCaptureFixture) -> None:
    tasks = [3, 1, 4, 1, 5]
    with caplog.at_level(logging.WARNING):
        assert list(map_in_workers(partial(make, 10), work, tasks, 2)) == [30, 10, 40, 10, 50]
    assert [record.message for record in caplog.records] == [f"task {task}" for task in tasks]
    assert {record.name for record in caplog.records} == {"turngraph.data.prompt"}


@pytest.mark.traced_processes
def test_a_process_has_one_thread_no_bar_and_leaves_signals_to_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    names = ["OMP_NUM_THREADS", "TQDM_DISABLE", "CUDA_VISIBLE_DEVICES", "SIGINT", "SIGUSR1"]
    found = list(map_in_workers(partial(make, 1), environment, names, 1))
    assert found == ["1", "1", "", signal.SIG_IGN, signal.SIG_IGN]
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "TQDM_DISABLE" not in os.environ


@pytest.mark.traced_processes
@pytest.mark.parametrize(
    ("factor", "tasks", "kind", "expected"),
    [
        (0, [1, 2], ValueError, "^model 'none': not found$"),
        (1, [1, -5, *[2] * 50], ValueError, "^conversation -5: wrong$"),
        (1, [1, 100], BrokenProcessPool, None),
    ],
)
def test_what_goes_wrong_in_a_process_is_raised_here(
    factor: int, tasks: list[int], kind: type[Exception], expected: str | None
) -> None:
    with pytest.raises(kind, match=expected):
        list(map_in_workers(partial(make, factor), work, tasks, 1))


def alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Workers in the middle of ten minutes' work end with their parent."""
    pids, script = tmp_path / "pids", tmp_path / "script.py"
    pids.mkdir()
    script.write_text(STARTS_WORKERS)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(pids)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(os.listdir(pids)) == 2, parent)
    workers = [int(name) for name in os.listdir(pids)]
    assert all(map(alive, workers))
    if number == signal.SIGINT:  # a terminal sends Ctrl-C to all of them
        os.killpg(parent.pid, number)
    else:
        parent.send_signal(number)
    _, said = parent.communicate(timeout=PATIENCE)
    assert parent.returncode != 0
    assert "SpawnProcess" not in said  # workers go without a word
    wait_until(lambda: not any(map(alive, workers)))
