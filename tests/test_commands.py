"""The command ``turngraph``: what it lists, finds and refuses, and how fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import turngraph as turngraph_package
from turngraph.__main__ import COMMANDS, main, run
from turngraph.configs.shipped import find_config, shipped_configs, with_shipped_configs

pytestmark = pytest.mark.traced_processes


def turngraph(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turngraph", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_lists_every_command_and_imports_nothing_of_weight() -> None:
    code = (
        "import sys; from turngraph.__main__ import main; main(['--help']);"
        "heavy = {'torch', 'numpy', 'transformers', 'argparse'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name}" in done.stdout for name in COMMANDS)


def test_help_of_a_command_loads_no_torch() -> None:
    commands = ["answer", "chat", "score", "export", "pool", "memory", "configs"]
    code = (
        "import sys; from turngraph.__main__ import run\n"
        "for command in sys.argv[1:]:\n"
        "    try: run(command, ['--help'])\n"
        "    except SystemExit: pass\n"
        "    assert 'torch' not in sys.modules, command\n"
    )
    command = [sys.executable, "-c", code, *commands]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: turngraph") == len(commands)


def test_help_of_training_ends_where_its_reader_does() -> None:
    """As for ``| head -1``."""
    root = Path(turngraph_package.__file__).parent
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, str(root / "train.py"), "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_unknown_command_names_the_nearest_and_exits_with_2() -> None:
    done = turngraph("answr")
    assert done.returncode == 2
    assert done.stderr == "error: turngraph answr: no such command; did you mean answer?\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["score", "--predictionss=a"], "turngraph score: error: unknown option --predictionss "
         "(did you mean --predictions?); --help lists the options"),
        (["answer", "--CHECKPOINT", "x"], "turngraph answer: error: unknown option --CHECKPOINT "
         "(did you mean --checkpoint?); --help lists the options"),
        (["memory", "remeber"], "'remeber' given, did you mean remember?; --help lists"),
        (["memory", "ask", "--as_off", "2020"], "unknown option --as_off (did you mean --as_of?)"),
        (["score", "--zzz"], "error: unknown option --zzz; --help lists the options"),
    ],
)  # fmt: skip
def test_an_unknown_option_names_the_nearest(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config=demoo"], r"config demoo: No such file.*mean demo\? `turngraph configs` lists"),
        (["--config=mine"], r"config mine: No such file.*; `turngraph configs` lists"),
        (["--dry-run"], r"unknown option --dry-run; did you mean --dry_run\?"),
        (["--confg", "demo"], r"unknown option --confg; did you mean --config\?"),
        (["--training.max-steps", "1"], r"did you mean --training\.max_steps\?"),
        (["--max_minute", "5"], r"unknown option --max_minute; did you mean --max_minutes\?"),
        (["--evidence.topk=3"], r"unknown option --evidence\.topk.*evidence\.top_k"),
        (["--evidence.top_k=three"], r"option --evidence\.top_k: 'three' given"),
        (["--data.train=missing.jsonl"], r"^missing\.jsonl: no such file"),
        (["--training.max_steps=0", "--data.tune=other.jsonl"], r"^other\.jsonl: no such file"),
    ],
)
def test_a_wrong_config_is_an_error_before_torch_is_loaded(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "turngraph.train", None)  # cannot be imported
    with pytest.raises(ValueError, match=message):
        run("train", ["--config", "demo", *options])


def test_missing_evidence_is_an_error_before_torch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "turngraph.inference.api", None)  # cannot be imported
    options = ["--checkpoint", str(tmp_path), "--evidence", str(tmp_path), "missing.txt"]
    with pytest.raises(ValueError, match=r"^missing\.txt: no such file or folder"):
        run("chat", options)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out.startswith("turngraph 0.")


def test_configs_are_listed_with_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    run("configs", [])
    out = capsys.readouterr().out
    found = dict(shipped_configs())
    assert {"demo", "sqa/graph_memory", "convmix/text"} <= found.keys()
    assert all(found.values())
    assert all(f"{name} " in out for name in found)
    assert "train one with: turngraph train --config " in out.splitlines()[-1]
    with pytest.raises(SystemExit) as refused:
        run("configs", ["demo"])
    assert refused.value.code == 2


def test_a_name_finds_the_shipped_file_and_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = find_config("sqa/graph_memory")
    assert shipped.is_file()
    assert find_config("sqa/graph_memory.yaml") == shipped
    assert find_config("nothing") == Path("nothing")
    assert find_config("../pyproject") == Path("../pyproject")
    (tmp_path / "demo").write_text("mine", encoding="utf-8")
    assert find_config("demo") == Path("demo")
    words = with_shipped_configs(
        ["--config", "sqa/text", "--config=convmix/text", "--x", "sqa/text"]
    )
    assert words[1].endswith("configs/sqa/text.yaml")
    assert words[2].endswith("configs/convmix/text.yaml")
    assert words[4] == "sqa/text"


def test_a_traceback_is_asked_for_and_the_study_has_its_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNGRAPH_TRACEBACK", "")
    main(["--traceback", "configs"])
    assert os.environ["TURNGRAPH_TRACEBACK"] == "1"
    with pytest.raises(SystemExit, match="0"):
        main(["study", "--help"])
    assert "--plan" in capsys.readouterr().out
