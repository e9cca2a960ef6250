"""Progress: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import io
import logging
import re
import sys
import time

import pytest

import turngraph.configs.progress as progress_module
from turngraph.configs.progress import progress, track
from turngraph.data.cli import AboveBars


class Terminal(io.StringIO):
    """Standard error of a terminal, or of a file."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_bar_on_a_terminal_and_lines_in_a_log(
    on_terminal: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    err = Terminal(on_terminal)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with caplog.at_level(logging.INFO):
        assert list(track("abc", "reading", "files")) == ["a", "b", "c"]
        with progress(10, "train", "steps", initial=4) as bar:
            bar.update(6)
        with progress(2, "of another process", "steps", shown=False) as bar:
            bar.update(2)
    assert "another process" not in err.getvalue() + caplog.text
    said = [record.getMessage().partition(" in ")[0] for record in caplog.records]
    if on_terminal:
        assert said == []
        assert "reading: 100%" in err.getvalue()
        assert "3/3" in err.getvalue()
        assert "10/10" in err.getvalue()
    else:
        assert said == ["reading: 3 files", "reading: done", "train: 6 steps", "train: done"]
        assert err.getvalue() == ""


def test_what_fails_is_not_done(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(ValueError, match="broken"),
        progress(2, "train", "steps"),
    ):
        raise ValueError("broken")
    assert "train: 2 steps" in caplog.text
    assert "done" not in caplog.text


def test_long_work_says_in_the_log_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "LOG_INTERVAL", 0.01)
    with progress(3, "train", "steps") as bar:
        assert not bar.dynamic_miniters  # else tqdm's monitor writes lines of its own
    caplog.clear()
    outer = progress_module.progress(1, "epochs", "epochs")  # nothing moves the cursor
    with outer, caplog.at_level(logging.INFO), progress(3, "train", "steps") as bar:
        for loss in ("2.0", "1.0"):
            time.sleep(0.05)
            bar.set_postfix(loss=loss, refresh=False)
            bar.update()
    # an earlier test's level may let the outer one's lines through
    lines = [m for m in (r.getMessage() for r in caplog.records) if m.startswith("train: ")]
    assert re.fullmatch("train: 1 of 3, .* left, loss=2.0", lines[1])
    assert re.fullmatch("train: 2 of 3, .* left, loss=1.0", lines[2])
    assert len(lines) == 4


@pytest.mark.parametrize("slow", [False, True])
def test_delayed_work_is_in_the_log_only_if_it_is_long(
    slow: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "LOG_INTERVAL", 0.01 if slow else 60.0)
    with caplog.at_level(logging.INFO), progress(None, "check", "rows", delay=2) as bar:
        time.sleep(0.05)
        bar.update()
    said = [re.sub(r" in [\d.]+ s", "", record.getMessage()) for record in caplog.records]
    assert said == (["check: 1 rows", "check: done"] if slow else [])


def test_libraries_draw_no_bars_into_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import logging as library

    library.enable_progress_bar()
    for on_terminal in (True, False):
        monkeypatch.setattr(sys, "stderr", Terminal(on_terminal))
        with progress_module.library_bars():
            assert library.is_progress_bar_enabled() == on_terminal
        assert library.is_progress_bar_enabled()


def test_a_log_line_does_not_break_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal(True)
    monkeypatch.setattr(sys, "stderr", err)
    handler = AboveBars(err)
    with progress(10, "answers", "questions") as bar:
        bar.update(1)
        bar.refresh()
        begin = len(err.getvalue())
        handler.handle(logging.makeLogRecord({"msg": "loading the encoder"}))
    written = err.getvalue()[begin:]
    assert re.search(r"\r {20,}\rloading the encoder\n", written) or "\x1b" in written
    assert "answers:" in written.partition("loading the encoder\n")[2]
