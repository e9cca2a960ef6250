"""Records of a long measurement: what a kill leaves of them, and their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from turngraph.benchmarks.quality.records import keep_complete_lines, open_records

HEAD = '{"settings": {"seed": 0}}\n'
SETTINGS = {"seed": 0}


@pytest.mark.parametrize("left", ["", HEAD[:9], HEAD[:-1]])
def test_a_file_without_its_first_line_begins_again(tmp_path: Path, left: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(left)
    with open_records(path, SETTINGS) as (done, file):
        assert done == []
        file.write('{"nats": 1}\n')
    assert path.read_text() == HEAD + '{"nats": 1}\n'


def test_a_line_that_was_cut_off_goes_and_the_others_are_never_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "records.jsonl"
    with open_records(path, SETTINGS) as (done, file):
        file.write('{"nats": 1}\n{"na')
    for name in ("write_bytes", "write_text"):
        monkeypatch.setattr(Path, name, lambda *_, **__: pytest.fail("a kill here loses all"))
    with open_records(path, SETTINGS) as (done, _):
        assert done == [{"nats": 1}]
    assert path.read_text() == HEAD + '{"nats": 1}\n'
    with path.open("a") as file:
        file.write("{")
    assert keep_complete_lines(path) == 2
    assert path.read_text() == HEAD + '{"nats": 1}\n'
