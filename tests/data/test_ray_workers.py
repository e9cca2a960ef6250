"""A map over a Ray cluster: order, errors, and what dies on the way.

Most tests have a stand-in for Ray, as a cluster takes long to start; those that are slow have a
cluster of three nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.corpus.build import CorpusBuilder, OnRay
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.corpus.source_files import find_sources
from turngraph.data.ray_workers import LOCAL, map_on_ray
from turngraph.data.sources.document import Unreadable
from turngraph.tests.stand_in_ray import LostError, StandIn

made: list[int] = []


def make() -> int:
    made.append(1)
    return 10


def work(state: int, task: int) -> int:
    if task == 7:
        raise Unreadable("a.txt", "empty", "or so", 3)
    if task == 8:
        raise LostError("died\nagain")
    return state + task


def test_results_come_in_order_and_few_tasks_wait(ray: StandIn) -> None:
    made.clear()
    tasks = iter([3, 1, 2, 6, 5, 4, 0])
    assert list(map_on_ray(LOCAL, make, work, tasks)) == [13, 11, 12, 16, 15, 14, 10]
    assert ray.most_waiting == 4
    assert made == [1]
    assert ray.asked == {"num_cpus": 1, "num_gpus": 0, "max_retries": 10, "max_calls": 0}
    assert not ray.running
    ray.running = True  # a cluster that was there before stays
    assert list(map_on_ray("auto", make, work, [1])) == [11]
    assert ray.running


def test_errors_are_raised_as_they_were(ray: StandIn) -> None:
    with pytest.raises(Unreadable, match=r"^a\.txt, line 3: empty: or so$") as raised:
        list(map_on_ray("head:6379", make, work, [1, 7, 2, 3]))
    assert raised.value.reason == "empty"
    assert ray.settings["address"] == "head:6379"
    assert (ray.cancelled, ray.running) == (2, False)
    with pytest.raises(ValueError, match="a task was lost 11 times: died again"):
        list(map_on_ray(LOCAL, make, work, [8]))
    with pytest.raises(ValueError, match="--ray nowhere:1: cannot be reached: no cluster"):
        list(map_on_ray("nowhere:1", make, work, [1]))
    with pytest.raises(ValueError, match="the cluster has no GPU, and 1 are needed"):
        list(map_on_ray(LOCAL, make, work, [1], num_gpus=1))


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"--ray needs ray: pip install 'turngraph\[ray\]'"):
        list(map_on_ray(LOCAL, make, work, [1]))


def no_encoder() -> None:
    """Make no sentence encoder."""


def write_sources(folder: Path, num: int = 40) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"town_{i:02d}.txt" for i in range(num)]
    for i, path in enumerate(paths):
        path.write_text(f"The mill of Town {i} was built by Person {i % 7}. It is old.")
    return paths


def test_a_corpus_is_the_same(
    ray: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turngraph.data.corpus.build.TASK_BYTES", 100)
    (write_sources(tmp_path / "files")[3]).write_text("")
    sources = find_sources([tmp_path / "files"])[0]
    alone = CorpusBuilder(tmp_path / "alone").build(sources)
    cluster = CorpusBuilder(tmp_path / "ray", ray=OnRay(LOCAL, no_encoder)).build(sources)
    assert [str(e) for e in cluster.skipped] == [str(e) for e in alone.skipped]
    assert cluster.added == alone.added
    assert ray.most_waiting == 4
    one, other = Corpus(tmp_path / "alone"), Corpus(tmp_path / "ray")
    assert list(one.passages) == list(other.passages)
    question = "Who built the mill of Town 5?"
    assert one.index("bm25").rank(question, 9) == other.index("bm25").rank(question, 9)


# with a cluster


def slow_make() -> str:
    return "made"


def slow_work(_: str, task: int) -> tuple[int, int]:
    time.sleep(0.3)
    return task, os.getpid()


def killed_once(folder: str, task: int) -> int:
    flag = Path(folder) / f"{task}.tried"
    if task % 3 == 0 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def folder_name() -> str:
    return os.environ["TURNGRAPH_TEST_FOLDER"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of a head and two nodes, of one core each."""
    pytest.importorskip("ray", reason="needs the extra ray")
    from ray.cluster_utils import Cluster

    os.environ["TURNGRAPH_TEST_FOLDER"] = str(tmp_path_factory.mktemp("flags"))
    size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    found = Cluster(initialize_head=True, head_node_args=size | {"include_dashboard": False})
    found.nodes = [found.add_node(**size) for _ in range(2)]
    yield found
    found.shutdown()


@pytest.mark.slow
def test_a_process_and_a_node_die(cluster: Any) -> None:
    found = map_on_ray(cluster.address, folder_name, killed_once, range(9))
    assert list(found) == list(range(9))
    done = map_on_ray(cluster.address, slow_make, slow_work, range(24))
    first = [next(done)[0] for _ in range(3)]
    cluster.remove_node(cluster.nodes[0], allow_graceful=False)
    results = list(done)
    assert [*first, *(task for task, _ in results)] == list(range(24))
    assert len({process for _, process in results}) > 1


DRIVER = """
import sys
from pathlib import Path
from turngraph.data.corpus import build
from turngraph.data.corpus.source_files import find_sources
from turngraph.tests.data.test_ray_workers import no_encoder
build.TASK_BYTES = 400
on_ray = build.OnRay(sys.argv[3], no_encoder)
build.CorpusBuilder(Path(sys.argv[2]), segment=10, ray=on_ray).build(find_sources([sys.argv[1]])[0])
"""


@pytest.mark.slow
def test_a_build_whose_driver_dies_goes_on(cluster: Any, tmp_path: Path) -> None:
    write_sources(tmp_path / "files", 200)
    folder = tmp_path / "corpus"
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "files"), str(folder), cluster.address]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(folder.glob("segments/*[0-9a-f]/manifest.json")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    stored = {path.parent.name for path in folder.glob("segments/*[0-9a-f]/manifest.json")}
    assert not (folder / "corpus.json").exists()
    subprocess.run(command, check=True, capture_output=True)
    CorpusBuilder(tmp_path / "alone").build(find_sources([tmp_path / "files"])[0])
    found = Corpus(folder, hashes=True)
    assert list(found.passages) == list(Corpus(tmp_path / "alone").passages)
    assert stored & set(found.version.segments)
