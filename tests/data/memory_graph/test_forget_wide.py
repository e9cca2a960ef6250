"""Forgetting an entity that is written in many ways: each is forgotten, or listed and then gone."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.memory import main
from turngraph.tests.data.memory_graph.hashing import Hashing

NAME = "Zoë Quux"
WAYS = {
    "as it is": "Yesterday Zoë Quux called.",
    "lower case": "yesterday zoë quux called.",
    "upper case": "YESTERDAY ZOË QUUX CALLED.",
    "without the accent": "Yesterday Zoe Quux called.",
    "another accent": "Yesterday Zoé Quux called.",
    "decomposed": unicodedata.normalize("NFD", "Yesterday Zoë Quux called."),
    "full width": "Yesterday Ｚｏｅ Ｑｕｕｘ called.",
    "mathematical letters": "Yesterday 𝐙𝐨𝐞 𝐐𝐮𝐮𝐱 called.",
    "possessive": "It was Zoë Quux's idea.",
    "possessive, curly": "It was zoe quux’s idea.",
    "handle": "Thanks to @ZoeQuux for it.",
    "handle, underscore": "Thanks to @zoe_quux for it.",
    "handle inside another": "Thanks to @realzoequux2020 for it.",
    "hashtag": "It is all in #zoequux now.",
    "e-mail": "Write to zoe.quux@example.org soon.",
    "e-mail, initial": "Write to zquux@example.org soon.",
    "e-mail, encoded": "See mailto:zoe%2Equux%40example.org there.",
    "URL": "See https://example.org/~zoequux/index.html there.",
    "URL, encoded": "See https://example.org/Zo%C3%AB%20Quux there.",
    "URL, plus": "See https://example.org/?q=zoe+quux there.",
    "hyphen": "Yesterday Zoe-Quux called.",
    "hyphen in a word": "Yesterday Zoë Qu-ux called.",
    "non-breaking hyphen": "Yesterday Zoë Qu\u2011ux called.",
    "soft hyphen": "Yesterday Zoë Qu\u00adux called.",
    "zero-width space": "Yesterday Zoë\u200bQuux called.",
    "zero-width joiner": "Yesterday Zo\u200dë Q\u200cuux called.",
    "byte order mark": "Yesterday Zoë Qu\ufeffux called.",
    "no-break space": "Yesterday Zoë\u00a0Quux called.",
    "double space": "Yesterday Zoë   Quux called.",
    "line break": "Yesterday Zoë\nQuux called.",
    "line break in a word": "Yesterday Zoë Qu-\nux called.",
    "underscore": "The file is zoe_quux_2020.pdf there.",
    "dots": "Yesterday Z.o.e Q.u.u.x called.",
    "spaced letters": "Yesterday Z o ë Q u u x called.",
    "camel case": "The folder is backupZoeQuuxOld there.",
    "reversed": "On the list: Quux, Zoë.",
    "Cyrillic letters": "Yesterday Z\u043e\u0435 Quux called.",
    "HTML entity": "Yesterday Zo&euml; Qu&shy;ux called.",
    "JSON escape": "Yesterday Zo\\u00eb Quux called.",
    "markdown": "Yesterday **Zoë** *Quux* called.",
    "direction marks": "Yesterday \u202eZoë\u202c Quux called.",
    "quoted": "Yesterday 'Zoë' \"Quux\" called.",
}
KEPT = "Bob likes tea."


def in_files(path: Path, text: str) -> bool:
    """Whether any file of a graph has the bytes of a text."""
    files = [*path.parent.glob(f"{path.name}*"), *path.parent.glob(f"{path.name}.derived/**/*")]
    return any(text.encode() in file.read_bytes() for file in files if file.is_file())


def remembered(path: Path) -> MemoryGraph:
    """A graph with every way to write the name, each in a source of its own."""
    graph = MemoryGraph.open(path, Hashing())
    graph.remember("Zoë Quux lives in Paris. Zoë Quux knows Bob.", "2020", "first")
    graph.remember(KEPT, "2020", "kept")
    graph.remember_many(Episode(text, "2020", way) for way, text in WAYS.items())
    graph.ask("Where does Zoë Quux live?")
    return graph


def test_every_way_is_forgotten_or_listed_and_then_gone(tmp_path: Path) -> None:
    assert len(WAYS) >= 30
    path = tmp_path / "my.db"
    with remembered(path) as graph:
        listed = {mention.source: mention for mention in graph.other_mentions(NAME)}
        assert "kept" not in listed
        plain = graph.forget(entity=NAME, dry_run=True)
        assert plain.episodes + len(listed) == len(WAYS) + 1
        assert graph.forget(entity=NAME, dry_run=True, wide=True).episodes == len(WAYS) + 1
        assert listed["e-mail"].spans == ("zoe.quux",)
        assert listed["URL"].spans == ("zoequux",)
        left = [way for way, text in WAYS.items() if in_files(path, text)]
        assert len(left) == len(WAYS)
        graph.forget(entity=NAME, wide=True)
        assert graph.other_mentions("Bob") == []
        assert [fact.text for fact in graph.history("Bob") if fact.ends] == ["Bob likes tea"]
        assert graph.check() == []
    for text in WAYS.values():
        assert not in_files(path, text)
    for word in ("uux", "UUX", "Ｑｕｕｘ", "zoe", "Zoe", "Zoë", "Z.o.e", "Yesterday"):
        assert not in_files(path, word), word
    assert in_files(path, "Bob likes tea")


def test_short_names_and_common_words_are_not_swept_up(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("Al lives in Rome.", source="first")
        graph.remember("We also met in a mall.", source="words")
        graph.remember("Write to @al or AL@example.org.", source="handle")
        graph.remember("A comparison of teas.", source="comparison")
        graph.remember("Bob lives in Paris.", source="paris")
        assert [mention.source for mention in graph.other_mentions("Al")] == ["handle"]
        [only] = graph.other_mentions("Paris")  # listed, for the user to judge
        assert (only.source, only.spans) == ("comparison", ("paris",))
        graph.forget(entity="Paris")
        assert "comparison" in [episode for (episode,) in graph.store.db.execute(
            "SELECT source FROM episodes"
        )]  # fmt: skip


def test_names_in_sources_and_properties_and_facts_are_found(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("Zorglub lives in Rome.", source="first")
        graph.remember("It rained.", source="chat with zorglub@example.org")
        graph.remember("It snowed.", source="b", origin="mail/ZORGLUB/7")
        graph.remember("It thawed.", source="c", properties={"from": "the_zorglub"})
        graph.remember("It froze.", source="d", speaker="dr-zorglub")
        found = [(mention.episode, mention.spans) for mention in graph.other_mentions("Zorglub")]
        assert [spans for _, spans in found] == [
            ("zorglub",), ("ZORGLUB",), ("zorglub",), ("zorglub",)
        ]  # fmt: skip
        assert graph.forget(entity="Zorglub", wide=True).episodes == 5
        assert not in_files(tmp_path / "my.db", "orglub")


def test_a_namesake_is_not_looked_for(tmp_path: Path) -> None:
    with MemoryGraph.open(tmp_path / "my.db") as graph:
        graph.remember("Zorglub likes tea.", source="a")
        graph.remember("Zorglub likes wine.", source="b")
        graph.remember("Write to @zorglub.", source="c")
        [node] = graph.store.objects("Zorglub")
        sql = "SELECT node FROM episodes WHERE source = 'b'"
        [(episode,)] = graph.store.db.execute(sql).fetchall()
        other = graph.split(node, "Zorglub", episodes=[episode])
        assert graph.other_mentions(other) == []
        assert graph.forget(entity=other, wide=True).episodes == 1


def test_the_command_lists_before_it_deletes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.db"
    with MemoryGraph.open(path) as graph:
        graph.remember("Zorglub lives in Rome.", source="a letter")
        graph.remember("Write to @zorglub soon.", source="a call")
    command = ["forget", "--db", str(path), "--entity", "Zorglub"]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(ValueError, match="nothing was forgotten"):
        main([*command, "--wide"])
    said = capsys.readouterr().out
    assert "--wide also forgets 1 episode with other spellings" in said
    assert "a call\tzorglub" in said
    assert in_files(path, "Rome")
    main([*command, "--yes"])
    said = capsys.readouterr().out
    assert "only --wide would also forget 1 episode" in said
    assert "a call\tzorglub" in said
    assert "episodes\t1" in said
    assert in_files(path, "@zorglub")
    with pytest.raises(ValueError, match="no object is named 'Zorglub'"):
        main([*command, "--yes"])
    assert "only --wide would also forget 1 episode" in capsys.readouterr().out
    main([*command, "--wide", "--yes"])  # no object has the name any more
    assert "episodes\t1" in capsys.readouterr().out
    assert not in_files(path, "zorglub")
    with pytest.raises(ValueError, match="no object is named 'Zorglub'"):
        main([*command, "--wide", "--yes"])
    with pytest.raises(ValueError, match="--wide: given without --entity"):
        main(["forget", "--db", str(path), "--source", "a call", "--wide", "--yes"])
