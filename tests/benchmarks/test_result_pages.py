"""Tables of the results: whole, described, named in docs/results.md, and written as pages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from turngraph.benchmarks.result_pages import RESULTS, read_tables, table_page
from turngraph.configs.user_error import UserError
from turngraph.tests.runs import ROOT


def test_the_results_name_every_table_and_no_other() -> None:
    text = (ROOT / "docs" / "results.md").read_text("utf-8")
    named = re.findall(r"\(\.\./benchmarks/results/(\w+)\.csv\)", text)
    assert sorted(named) == sorted(read_tables())
    assert len(text.splitlines()) <= 300


def test_a_page_has_the_rows_and_the_command_of_its_table() -> None:
    page = table_page("demo", read_tables()["demo"])
    assert "| trained, graph + memory | 0.63 / 0.80 | 0.47 / 0.65 | 0.57 / 0.68 |" in page
    assert "python benchmarks/demo.py --seed S" in page
    for name, table in read_tables().items():
        assert all((table.title, table.command, table.at)), name
        assert len(table.rows) > 1, name
        texts = (*table.notes, *table.command)
        assert all(isinstance(text, str) for text in texts), name  # YAML reads "a: b" as a mapping


def test_a_table_that_is_not_whole_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    shutil.copytree(RESULTS, folder)
    (folder / "demo.csv").write_text("a,b\n1,2\n1\n", "utf-8")
    with pytest.raises(UserError, match=r"demo\.csv: row 3 has 1 cells, the head 2"):
        read_tables(folder)
    (folder / "demo.csv").unlink()
    with pytest.raises(UserError, match=r"tables\.yaml: .*demo"):
        read_tables(folder)
