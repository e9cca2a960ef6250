"""Themes in the record: incremental equals rebuilt, what ended is not quoted, nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.record import theme_rows
from turngraph.data.memory_graph.record.integrity import broken_rules
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl, import_jsonl
from turngraph.tests.data.memory_graph.hashing import Hashing
from turngraph.tests.data.memory_graph.talks import (
    Script,
    content,
    opened,
    questions,
    talk,
    with_talks,
)


def theme_ids(graph: MemoryGraph, source: str) -> list[int]:
    sql = "SELECT id FROM themes WHERE source = ? ORDER BY id"
    return [id_ for (id_,) in graph.store.db.execute(sql, (source,))]


def test_only_changed_sources_are_made_and_that_equals_making_all(tmp_path: Path) -> None:
    later = talk("b", 9, seed=1)
    with with_talks(tmp_path / "one.db", ["a", "b", "c", "d", None]) as one:
        assert one.make_themes().changed == 5
        before = {source: theme_ids(one, source) for source in "abcd"}
        one.remember_many(later)
        made = one.make_themes()
        assert (made.changed, made.complete, made.chunks, made.sources) == (1, True, 129, 5)
        after = {source: theme_ids(one, source) for source in "abcd"}
        assert {source for source in "abcd" if before[source] != after[source]} == {"b"}
        assert made.themes[0] >= 10
        assert made.themes[1] >= 2
        counts = one.stats().themes
        assert (counts["level 1"], counts["level 2"]) == made.themes
        assert (counts["chunks"], counts["questions"]) == (made.chunks, made.questions)
        revision = one.store.revision
        assert one.make_themes().changed == 0
        assert one.store.revision == revision
        assert one.check() == []
        with with_talks(tmp_path / "two.db", ["a", "b", "c", "d", None]) as two:
            two.remember_many(later)
            two.make_themes()
            assert content(two) == content(one)
            assert questions(two) == questions(one)


def test_arrays_and_vectors_are_made_again_where_they_are_missing(tmp_path: Path) -> None:
    with with_talks(tmp_path / "my.db", "abcd") as graph:
        graph.make_themes()
        asked = graph.ask_themes("What has Anna said of roses?")
        before = content(graph)
        assert graph.check(rebuild=True) == []
        again = graph.ask_themes("What has Anna said of roses?")
        assert [theme.id for theme in again.themes] == [theme.id for theme in asked.themes]
        graph.remember_many(talk("a", 3, seed=1))
        graph.make_themes()
        arrays = next(graph.store.derived.glob("eigen-*"))
        assert len(np.load(arrays / "chunks.npy")) == 99
        owners = np.load(arrays / "starts.npy")
        assert (np.diff(owners) > 0).all()  # also of the sources that were not made again
        assert {row[1] for row in before} == {row[1] for row in content(graph)}


def test_a_run_that_is_stopped_while_themes_are_made_again_leaves_a_whole_graph(
    tmp_path: Path,
) -> None:
    """Also no theme of themes with a member that was replaced, which ``check`` calls damaged."""
    script, other = Script(), Script()
    with with_talks(tmp_path / "my.db", "abcd") as graph:
        assert graph.make_themes().themes[1]
        calls = iter([False] * 4)
        made = graph.make_themes(script.lm(), stop=lambda: next(calls, True))
        assert (made.complete, made.changed, made.maker) == (False, 1, "lm:script")
        assert graph.check() == []
        assert graph.themes()
        assert graph.ask_themes("What has Anna said of roses?").facts
    with opened(tmp_path / "my.db") as graph:
        assert graph.make_themes(script.lm()).changed == 3
        with with_talks(tmp_path / "other.db", "abcd") as whole:
            whole.make_themes(other.lm())
            assert content(whole) == content(graph)


def test_what_ended_is_quoted_of_its_time_only(tmp_path: Path) -> None:
    with opened(tmp_path / "my.db") as graph:
        for number in range(10):
            graph.remember(f"Guest {number} met Anna.", "2019", "a")
        graph.remember("Anna lives in Paris.", "2020-02", "a")
        graph.make_themes()
        told = {quote.text for theme in graph.themes() for quote in theme.quotes}
        assert "Anna lives in Paris." in told
        graph.remember("Anna lives in Rome.", "2021-05", "b")
        now = {quote.text for theme in graph.themes() for quote in theme.quotes}
        assert "Anna lives in Paris." not in now  # before anything is made again
        then = {quote.text for theme in graph.themes("2020") for quote in theme.quotes}
        assert "Anna lives in Paris." in then
        assert graph.make_themes().changed == 2
        asked = {fact.text for fact in graph.ask_themes("Where does Anna live?").facts}
        assert "Anna lives in Paris." not in asked
        asked = {fact.text for fact in graph.ask_themes("Where does Anna live?", "2020").facts}
        assert "Anna lives in Paris." in asked
        graph.forget(source="b")
        now = {quote.text for theme in graph.themes() for quote in theme.quotes}
        assert "Anna lives in Paris." in now


def test_history_is_no_chunk_and_texts_without_words_are_counted(tmp_path: Path) -> None:
    with with_talks(tmp_path / "my.db", "a", 9) as graph:
        graph.remember("How are you, Anna?", source="a", properties={"kind": "question"})
        graph.remember("Fine.", source="a", properties={"kind": "answer"})
        graph.remember(" ?! ", source="a")
        made = graph.make_themes()
        assert (made.chunks, made.blank, made.sources) == (9, 1, 1)
        assert graph.make_themes().changed == 0


def test_a_long_text_is_split_and_its_parts_are_members(tmp_path: Path) -> None:
    with opened(tmp_path / "my.db") as graph:
        long = " ".join(episode.text for episode in talk("a", 60))
        graph.remember(long, "2020", "a")
        made = graph.make_themes()
        assert made.chunks > 5
        spans = graph.store.db.execute("SELECT start, stop FROM chunks ORDER BY id").fetchall()
        assert spans[0][0] == 0
        assert spans[-1][1] == len(long)
        graph.remember_many(talk("a", 9))
        graph.make_themes()
        assert graph.themes()
        found = graph.ask_themes("What has Bob said of the storm?")
        assert any("storm" in fact.text for fact in found.facts)
        assert graph.check() == []


@pytest.mark.parametrize("wrong", [np.nan, 0.0])
def test_a_wrong_vector_names_the_episode_and_older_themes_stay(
    tmp_path: Path, wrong: float
) -> None:
    with with_talks(tmp_path / "my.db", "ab") as graph:
        graph.make_themes()
        before = content(graph)
        graph.remember("Anna likes zorglub.", source="b")
        sound = Hashing()

        def embed(texts: Sequence[str]) -> np.ndarray:
            found = sound(texts)
            found[["zorglub" in text for text in texts]] = wrong
            return found

        graph.embed = embed
        with pytest.raises(
            ValueError, match=r"my\.db: .*episode #\d+ .*zero or not finite"
        ) as told:
            graph.make_themes()
        assert "zorglub" not in str(told.value)
        assert content(graph) == before


def test_another_encoder_makes_them_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with with_talks(tmp_path / "my.db", "ab") as graph:
        graph.make_themes()
    with MemoryGraph.open(tmp_path / "my.db", Hashing(seed=1)) as graph:
        assert graph.make_themes().changed == 2
        assert "of another encoder" in caplog.text
        with MemoryGraph.open(tmp_path / "new.db", Hashing(seed=1)) as new:
            new.remember_many(episode for source in "ab" for episode in talk(source, 24))
            new.make_themes()
            assert content(new) == content(graph)


def test_a_source_that_changes_meanwhile_is_made_again(tmp_path: Path) -> None:
    more, encode = [talk("a", 2, seed=1)], Hashing()

    def embed(texts: Sequence[str]) -> np.ndarray:
        if more and len(texts) > 1:  # those of the source, which is read
            other.remember_many(more.pop())
        return encode(texts)

    with with_talks(tmp_path / "my.db", "a") as graph, opened(tmp_path / "my.db") as other:
        graph.embed = embed
        made = graph.make_themes()
        assert (made.complete, made.chunks) == (True, 26)
        with graph.store.reading():
            assert theme_rows.changed_sources(graph.store.db) == []
        assert sum(theme.num_chunks for theme in graph.themes() if theme.level == 1) == 26


def test_an_lm_is_asked_once_for_each_chunk(tmp_path: Path) -> None:
    script = Script()
    with with_talks(tmp_path / "my.db", "ab") as graph:
        made = graph.make_themes(script.lm())
        assert made.maker == "lm:script"
        assert len(script.asked) == 48 + len(script.written), "and for each summary"
        assert made.questions <= 48
        summaries = {theme.summary for theme in graph.themes() if theme.level == 1}
        asked = {theme.questions for theme in graph.themes() if theme.level == 1}
        assert asked <= {(f"What did {name} say of it?",) for name in ("Anna", "Bob", "Carl")}
        assert summaries <= {f"{name} likes much." for name in ("Anna", "Bob", "Carl")}
        assert {theme.maker for theme in graph.themes() if theme.level == 1} == {"lm:script"}
        written = len(script.written)
        graph.remember_many(talk("b", 3, seed=1))
        graph.make_themes(script.lm())
        assert len(script.asked) == 51 + len(script.written)
        assert len(script.written) < 2 * written + 2  # of source b alone
        graph.make_themes()  # what the LM made stays, and is not used
        assert not any(kept for _, _, kept, _ in questions(graph))
        assert graph.make_themes(script.lm()).changed == 2
        assert len(script.asked) == 51 + len(script.written)
        assert graph.check() == []


def test_an_lm_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    script = Script()
    with with_talks(tmp_path / "my.db", "a") as graph:
        calls = iter([False, False, True])
        made = graph.make_themes(script.lm(), stop=lambda: next(calls, True))
        assert (made.complete, made.themes) == (False, (0, 0))
        assert len(script.asked) == 8
        graph.make_themes(script.lm())
        assert len(script.asked) == 24 + len(script.written)


def test_a_round_trip_keeps_what_an_lm_made(tmp_path: Path) -> None:
    script = Script()
    with with_talks(tmp_path / "one.db", "abcd") as one:
        one.make_themes(script.lm())
        export_jsonl(one.store, tmp_path / "out.jsonl")
        with opened(tmp_path / "two.db") as two:
            import_jsonl(two.store, tmp_path / "out.jsonl")
            export_jsonl(two.store, tmp_path / "again.jsonl")
            same = (tmp_path / "again.jsonl").read_text("utf-8")
            assert same == (tmp_path / "out.jsonl").read_text("utf-8")
            assert two.check() == []
            assert content(two) == content(one)
            asked = len(script.asked)
            two.make_themes(script.lm())
            assert len(script.asked) == asked
            assert content(two) == content(one)


WRONG = {
    "field eigenvalue: must be a number": (r'(?<="eigenvalue":)[\d.]+', '"much"'),
    "themes whose members are no chunks": ('(?<="member":)1,', "999999,"),
    "questions of no chunk": ('(?<="chunk":)1,', "999999,"),
    "quotations that no episode states": (
        r'(?<="kind":"quote","theme":1,"position":0,"fact":)\d+',
        "1",
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_lines_of_themes_are_refused(tmp_path: Path, message: str) -> None:
    with with_talks(tmp_path / "one.db", "a") as graph:
        graph.make_themes(Script().lm())
        export_jsonl(graph.store, tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text("utf-8").replace('": ', '":').replace(', "', ',"')
    old, new = WRONG[message]
    text, num_changed = re.subn(old, new, text, count=1)
    assert num_changed == 1
    (tmp_path / "out.jsonl").write_text(text, "utf-8")
    with opened(tmp_path / "two.db") as two, pytest.raises(ValueError, match=message):
        import_jsonl(two.store, tmp_path / "out.jsonl")


def test_texts_without_theses_are_quoted_by_sentences(tmp_path: Path) -> None:
    """As those of a language that the rules do not read."""
    with opened(tmp_path / "my.db") as graph:
        words = "róże tulipany gleba kompost pszczoły pomidory chwasty ogród".split()
        for one in words:
            text = f"Wczoraj Ania sadziła w ogrodzie {one} i bardzo się cieszyła."
            graph.remember(text, "2020", "pl")
        assert graph.stats().nodes["thesis"] == 0
        graph.make_themes()
        [theme, *_] = graph.themes()
        assert theme.quotes[0].type == "episodic"
        assert len(theme.quotes[0].text) < 80
        assert theme.quotes[0].provenance[0].span[1] < 90
        assert graph.check() == []
        asked = graph.ask_themes("róże")
        assert "róże" in asked.facts[0].text + asked.facts[1].text


BREAKS = {
    "chunks in no episode": "UPDATE chunks SET episode = 2 WHERE id = 1",
    "chunks outside of their episode's text": "UPDATE chunks SET stop = 9999 WHERE id = 1",
    "questions of no chunk": "UPDATE questions SET chunk = 9999 WHERE id = 1",
    "themes of an unknown level": "UPDATE themes SET level = 3 WHERE id = 1",
    "themes without members": "DELETE FROM theme_members WHERE theme = 1",
    "members of no theme": "INSERT INTO theme_members VALUES (9999, 1, 1.0)",
    "themes whose members are no chunks of their source": "UPDATE themes SET source = 'x'"
    " WHERE id = 1",
    "themes of themes whose members are no themes": "UPDATE themes SET level = 2 WHERE id = 1",
    "quotations of no theme": "UPDATE theme_quotes SET theme = 9999 WHERE theme = 1",
    "quotations that no episode states": "UPDATE theme_quotes SET start = start + 1"
    " WHERE theme = 1",
    "sources with themes but without episodes": "INSERT INTO themed VALUES ('x', 1, 'none')",
}


def test_check_finds_what_does_not_hold_between_rows(tmp_path: Path) -> None:
    with with_talks(tmp_path / "my.db", "a", 12) as graph:
        graph.make_themes(Script().lm())
        db = graph.store.db
        assert broken_rules(db) == []
        for what, sql in BREAKS.items():
            db.execute("BEGIN")
            db.execute(sql)
            assert what in {problem.what for problem in broken_rules(db)}
            db.execute("ROLLBACK")


def test_vectors_of_questions_are_checked(tmp_path: Path) -> None:
    with with_talks(tmp_path / "my.db", "abc") as graph:
        graph.make_themes()
        graph.make_themes(Script().lm())  # enough rows to be on disk
        graph.ask_themes("Who?")
    with opened(tmp_path / "my.db") as graph:
        assert graph.check() == []
        graph.store.db.execute("UPDATE questions SET text = text || ' x' WHERE id = 3")
        [problem] = graph.check()
        assert "vectors of my.db.derived/questions differ" in problem.what
