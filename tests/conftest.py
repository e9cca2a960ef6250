"""Where the tests find the real benchmarks, and a count of what was skipped for want of them."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

MISSING = "TURNGRAPH_DATA does not name a folder with the real benchmarks"


def _unpack(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = os.environ.get("TURNGRAPH_DATA", "")
    archive = Path(root) / f"{name}.tar.xz"
    if not root or not archive.is_file():
        pytest.skip(MISSING)
    target = tmp_path_factory.mktemp("benchmarks")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return target / name


@pytest.fixture(scope="session")
def sqa_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked SQA benchmark with its pages."""
    return _unpack("sqa", tmp_path_factory)


@pytest.fixture(scope="session")
def convmix_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked ConvMix development questions and evidence sample."""
    return _unpack("convmix", tmp_path_factory)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run because the benchmarks are not here."""
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if MISSING in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: {MISSING}")
