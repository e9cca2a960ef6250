"""The commands ``memory themes``, ``ask --themes`` and ``export --themes``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from turngraph import memory
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.inference import theme_commands
from turngraph.tests.data.memory_graph.talks import Script, talk, with_talks


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = tmp_path / "my.db"
    with_talks(path, "abcd").close()
    return str(path)


def run(*arguments: str) -> None:
    memory.main([arguments[0], "--db", *arguments[1:]])


def test_themes_are_listed_asked_and_drawn(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("themes", db, "--no_embed")
    *lines, last = capsys.readouterr().out.splitlines()
    themes = r"(\d+) themes, (\d+) themes? of themes"
    wanted = rf"96 passages, 4 sources, {themes}, [\d.]+ s"
    numbers = re.fullmatch(wanted, last)
    assert numbers is not None, last
    assert len(lines) == sum(map(int, numbers.groups()))
    for line in lines:
        number, level, eigenvalue, chunks, sources, quotation = line.split("\t")
        assert int(number) > 0
        assert level in "12"
        assert float(eigenvalue) <= 1
        assert int(chunks) >= int(sources) >= 1
        assert quotation.endswith(".")
    run("ask", db, "--themes", "--no_embed", "What has Anna said of roses?")
    first, *facts = capsys.readouterr().out.splitlines()
    shown = r"theme \d+( \(of themes\))?, closeness 0\.\d+: \d+ passages of \d sources?$"
    assert re.match(shown, first)
    assert any("roses" in fact for fact in facts)
    run("ask", db, "--themes", "--no_embed", "--json", "--as_of", "2019", "roses?")
    told = json.loads(capsys.readouterr().out)
    assert told["themes"]
    assert told["as_of"] == "2019"
    page = Path(db).with_name("themes.html")
    run("export", db, "--themes", str(page), "--max_nodes", "50")
    assert capsys.readouterr().out.startswith(f"50 of {96 + len(lines)} themes and passages")
    assert page.stat().st_mode & 0o77 == 0
    run("check", db)
    assert capsys.readouterr().out == "sound\n"


def test_stopped_themes_exit_with_75_and_go_on(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [False, False, True]
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__bool__", lambda self: left.pop(0) if left else True)
        with pytest.raises(SystemExit) as stopped:
            run("themes", db, "--no_embed")
    assert stopped.value.code == EXIT_GO_ON
    assert "48 passages, 2 sources" in capsys.readouterr().out
    run("themes", db, "--no_embed")
    assert "96 passages, 4 sources" in capsys.readouterr().out


def test_few_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = str(tmp_path / "few.db")
    with_talks(db, "a", 7).close()
    run("themes", db, "--no_embed")
    wanted = "7 passages, 1 source, no themes (a source needs 8 passages), "
    assert capsys.readouterr().out.startswith(wanted)
    with pytest.raises(ValueError, match="no themes; `turngraph memory themes` makes them"):
        run("export", db, "--themes", str(tmp_path / "out.html"))
    assert not (tmp_path / "out.html").exists()
    run("ask", db, "--themes", "--no_embed", "What does Anna like?")
    assert capsys.readouterr().out


def test_an_lm_that_made_the_questions_is_asked_again(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless others are asked for: without --questions nothing that it made is thrown away."""
    from turngraph.data.memory_graph.recall.word_vectors import word_vectors

    script, loaded = Script(), []

    def language_model(name: str) -> Any:
        loaded.append(name)
        return lambda prompts, schema: (
            script.generate(prompts, schema)
            if "questions" in schema["properties"]
            else [(json.dumps({"summary": text}), True) for text in script.write(prompts)]
        )

    def themes(**options: Any) -> str:
        given = {"questions": None, "summaries": None, "model": None} | options
        theme_commands.themes(
            db=db,
            embed=word_vectors,
            language_model=language_model,
            default_model="default",
            max_minutes=None,
            as_json=False,
            **given,
        )
        return capsys.readouterr().out.splitlines()[-1]

    assert "questions" not in themes()
    assert "(lm:small)" in themes(questions="lm", model="small", summaries="lm")
    with MemoryGraph.open(db) as graph:
        assert any(theme.maker == "lm:small" for theme in graph.themes())
        graph.remember_many(talk("a", 2, seed=1))
    asked = len(script.asked)
    assert "(lm:small)" in themes()
    assert len(script.asked) == asked + 2
    assert loaded == ["small", "small"]
    assert "questions" not in themes(questions="none")
    with pytest.raises(ValueError, match="--summaries lm: given without --questions lm"):
        themes(summaries="lm")
    assert "(lm:default)" in themes(questions="lm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mixture", "flat"), "remove --set, --mixture and --forbidden"),
        (("--forbidden", "E"), "remove --set, --mixture and --forbidden"),
        (("--min_similarity", "2"), "min_similarity: 2.0 given"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    db: str, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run("ask", db, "--themes", "--no_embed", *arguments, "Anna?")


def test_json(
    db: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run("themes", db, "--no_embed", "--json")
    told = json.loads(capsys.readouterr().out)
    assert {theme["level"] for theme in told["themes"]} >= {1}
    assert "96 passages, 4 sources" in caplog.text
