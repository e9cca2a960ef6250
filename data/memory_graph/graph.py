"""A memory graph as its user has it: remember, ask, look at, put right, forget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.memory_types import Episode, Extractor, Fact
from turngraph.data.memory_graph.record.ingest import BATCH, Remembered, remember_many
from turngraph.data.memory_graph.record.store import WAIT_SECONDS, Store
from turngraph.data.memory_graph.upkeep import edit, journal
from turngraph.data.memory_graph.upkeep.forget import Forgotten, finish, forget
from turngraph.data.memory_graph.upkeep.show import Shown, history, show

if TYPE_CHECKING:  # what few commands need is imported where it is used
    from turngraph.data.embedding import Embed
    from turngraph.data.memory_graph.recall.recall import Recall, RecallSettings, Recollection
    from turngraph.data.memory_graph.upkeep.check import Problem
    from turngraph.data.memory_graph.upkeep.stats import Stats


class MemoryGraph:
    """A memory graph, opened; a context manager.

    Args:
        store: the record.
        extractor: says what texts say.
        embed: texts to unit vectors; None: nothing can be asked.
    """

    def __init__(self, store: Store, extractor: Extractor, embed: Embed | None = None) -> None:
        self.store, self.extractor, self.embed = store, extractor, embed

    @classmethod
    def open(
        cls,
        path: str | Path,
        embed: Embed | None = None,
        extractor: Extractor | None = None,
        read_only: bool = False,
        wait: float = WAIT_SECONDS,
    ) -> MemoryGraph:
        """Open a memory graph; a new one is made unless ``read_only``.

        Args:
            path: of its database.
            embed: texts to unit vectors; needed for asking only.
            extractor: says what texts say; None: the rules, which need no model.
            read_only: for looking and asking; as many processes as you like.
            wait: seconds to wait while another process writes.

        Raises:
            ValueError: there is none (``read_only``), or the file is something else, damaged, or of
                a newer version.
        """
        if extractor is None:
            from turngraph.data.memory_graph.extract.rules import RulesExtractor

            extractor = RulesExtractor()
        store = Store(path, read_only, wait)
        if not read_only:
            finish(store)
        return cls(store, extractor, embed)

    def __enter__(self) -> MemoryGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Close the database, and write down what asking has made."""
        if "_recall" in self.__dict__:
            self._recall.close()
            del self._recall
        self.store.close()

    def remember(
        self,
        text: str,
        time: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        origin: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Remembered:
        """Remember a text; when this returns it is on the disk. The arguments are an ``Episode``'s.

        Raises:
            ValueError: as of ``remember_many``.
        """
        episode = Episode(text, time, source, origin, speaker, properties or {})
        return self.remember_many([episode])

    def remember_many(
        self, episodes: Iterable[Episode], progress: bool = False, batch: int = BATCH
    ) -> Remembered:
        """Remember episodes in their order, a batch at a time; see ``ingest.remember_many``.

        Raises:
            ValueError: an episode is not as it has to be (the batches before it stay), or the graph
                cannot be written.
        """
        return remember_many(self.store, self.extractor, episodes, progress, batch)

    @cached_property
    def _recall(self) -> Recall:
        from turngraph.data.memory_graph.recall.recall import Recall

        if self.embed is None:
            raise ValueError(f"{self.store.path}: opened without an embedder, which asking needs")
        writable = not (self.store.read_only or self.store.in_memory)
        return Recall(self.store, self.embed, self.extractor, writable)

    def ask(
        self, question: str, as_of: str | None = None, settings: RecallSettings | None = None
    ) -> Recollection:
        """What the memory says to a question; see ``recall.Recall.ask``.

        Args:
            question: in words.
            as_of: a time; what held at its end is answered. None: what holds now.
            settings: None: the paper's.

        Raises:
            ValueError: there is no embedder, or ``as_of`` is no time.
        """
        return self._recall.ask(question, as_of, settings)

    def ask_episodes(
        self, question: str, as_of: str | None = None, settings: RecallSettings | None = None
    ) -> list[Fact]:
        """The episodes that may answer a question, best first; see ``recall.Recall.ask_episodes``.

        Raises:
            ValueError: there is no embedder, or ``as_of`` is no time.
        """
        return self._recall.ask_episodes(question, as_of, settings)

    def forget(
        self,
        episode: int | Iterable[int] | None = None,
        entity: str | int | None = None,
        source: str | None = None,
        dry_run: bool = False,
    ) -> Forgotten:
        """Forget one of the three without a trace; see ``forget.forget``.

        Raises:
            ValueError: not one of the three is given, or it is not known.
        """
        return forget(self.store, episode, entity, source, dry_run)

    def show(self, entity: str | int) -> Shown:
        """An object by name or id, and what holds of it now.

        Raises:
            ValueError: no object has that name or id, or several have.
        """
        return show(self.store, entity)

    def history(self, entity: str | int) -> list[Fact]:
        """All facts of an object, closed ones too, in order of time.

        Raises:
            ValueError: no object has that name or id, or several have.
        """
        return history(self.store, entity)

    def merge(self, keep: str | int, other: str | int) -> int:
        """Make one object of two that are one thing; returns its id.

        Raises:
            ValueError: a name is unknown or ambiguous, or both are one object already.
        """
        return edit.merge(self.store, keep, other)

    def split(
        self,
        entity: str | int,
        new_name: str,
        episodes: Iterable[int] = (),
        facts: Iterable[int] = (),
    ) -> int:
        """Make two objects of one that stands for two things; see ``edit.split``.

        Raises:
            ValueError: the object is unknown or ambiguous, or has nothing to do with what moves.
        """
        return edit.split(self.store, entity, new_name, episodes, facts)

    def rename(self, entity: str | int, name: str) -> int:
        """Give an object a new name, beside those that it has; returns its id.

        Raises:
            ValueError: the object is unknown or ambiguous, or the name is blank.
        """
        return edit.rename(self.store, entity, name)

    def add_alias(self, entity: str | int, name: str) -> int:
        """Let an object be found by one more name; returns its id.

        Raises:
            ValueError: the object is unknown or ambiguous, or the name is another object's.
        """
        return edit.add_alias(self.store, entity, name)

    def undo(self) -> str:
        """Take back the last merge, split, rename or alias, and return which it was.

        Raises:
            ValueError: there is none, or what was remembered since builds on it.
        """
        return journal.undo(self.store)

    def stats(self) -> Stats:
        """How much of what is in it."""
        from turngraph.data.memory_graph.upkeep.stats import stats

        return stats(self.store)

    def check(self, rebuild: bool = False) -> list[Problem]:
        """What is wrong with it; none is good.

        Args:
            rebuild: first make everything again that can be derived.

        Raises:
            ValueError: it cannot be written (``rebuild``).
        """
        from turngraph.data.memory_graph.upkeep import check

        if rebuild:
            check.rebuild(self.store)
        return check.check(self.store)

    def backup(self, path: str | Path) -> None:
        """Copy the last committed state to a new file, while others read and write.

        Raises:
            ValueError: something is there, or it cannot be written.
        """
        from turngraph.data.memory_graph.upkeep.backup import backup

        backup(self.store, path)
