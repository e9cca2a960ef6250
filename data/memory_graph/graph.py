"""Interface of the memory graph: remember, ask, inspect, edit, forget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.memory_types import Episode, Extractor, Fact
from turngraph.data.memory_graph.record.ingest import BATCH, Remembered, remember_many
from turngraph.data.memory_graph.record.open_store import open_store
from turngraph.data.memory_graph.record.store import WAIT_SECONDS, Store
from turngraph.data.memory_graph.times import second_of
from turngraph.data.memory_graph.upkeep import edit, journal
from turngraph.data.memory_graph.upkeep.forget import (
    Forgotten,
    Listed,
    forget,
    other_mentions,
    to_forget,
)
from turngraph.data.memory_graph.upkeep.purge import finish
from turngraph.data.memory_graph.upkeep.show import Shown, Turn, history, show, turns

if TYPE_CHECKING:  # what few commands need is imported where it is used
    from turngraph.data.embedding import Embed
    from turngraph.data.memory_graph.plan.model_replies import ReplyCache
    from turngraph.data.memory_graph.plan.recall_cache import RecallCache
    from turngraph.data.memory_graph.plan.run_plan import OnStep
    from turngraph.data.memory_graph.plan.steps import Digester, Planner, PlanSettings
    from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme
    from turngraph.data.memory_graph.recall.recall import Recall, RecallSettings
    from turngraph.data.memory_graph.recall.recollection import (
        Recollection,
        RecollectionReader,
    )
    from turngraph.data.memory_graph.recall.theme_search import AskThemes
    from turngraph.data.memory_graph.record.integrity import Problem
    from turngraph.data.memory_graph.record.wide_search import Mention
    from turngraph.data.memory_graph.upkeep.make_themes import ThemesMade
    from turngraph.data.memory_graph.upkeep.stats import Stats
    from turngraph.data.memory_graph.upkeep.theme_questions import Lm


class MemoryGraph:
    """An open memory graph, which is a context manager.

    Args:
        store: the record.
        extractor: extracts the statements of texts.
        embed: sentence encoder; None: the graph cannot be asked.
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
        tenant: str | None = None,
    ) -> MemoryGraph:
        """Open a memory graph; a missing one is created unless ``read_only``.

        Args:
            path: path of an SQLite file, or URL of a PostgreSQL database (extra ``postgres``):
                ``postgresql://user:password@host/database``; see ``open_store.open_store``.
            embed: sentence encoder; needed for asking only.
            extractor: extracts the statements of texts; None: the rules, which need no model and
                read English.
            read_only: allow inspecting and asking only, by any number of processes.
            wait: seconds to wait while another process writes.
            tenant: name of the graph's owner in a PostgreSQL database, which holds one graph for
                each tenant; a missing one is created.

        Raises:
            UserError: the file is missing (``read_only``), is not a memory graph, is damaged, or
                has another schema version; or the server does not answer or refuses.
        """
        if extractor is None:
            from turngraph.data.memory_graph.extract.english_rules import EnglishRules

            extractor = EnglishRules()
        store = open_store(path, read_only, wait, tenant)
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
        """Close the database, and write derived data to disk."""
        self._close_recall()
        self.store.close()

    def release(self) -> None:
        """Free the data that questions loaded into memory; the next question loads it again."""
        self._close_recall()
        self.store.release()

    def _close_recall(self) -> None:
        if "_recall" in self.__dict__:
            self._recall.close()
            del self._recall
        self.__dict__.pop("_recalls", None)

    def remember(
        self,
        text: str,
        time: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        origin: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Remembered:
        """Remember a text, and flush it to disk; the arguments are the fields of ``Episode``.

        Raises:
            UserError: as ``remember_many``.
        """
        episode = Episode(
            text=text,
            time=time,
            source=source,
            origin=origin,
            speaker=speaker,
            properties=properties or {},
        )
        return self.remember_many([episode])

    def remember_many(
        self, episodes: Iterable[Episode], progress: bool = False, batch: int = BATCH
    ) -> Remembered:
        """Remember episodes in order, a batch at a time; see ``ingest.remember_many``.

        Raises:
            UserError: an episode is invalid (earlier batches stay), or the graph cannot be
                written.
        """
        return remember_many(self.store, self.extractor, episodes, progress, batch)

    @cached_property
    def _recall(self) -> Recall:
        from turngraph.data.memory_graph.recall.recall import Recall

        if self.embed is None:
            raise UserError(f"{self.store}: opened without an embedder, which asking needs")
        writable = not (self.store.read_only or self.store.in_memory)
        return Recall(self.store, self.embed, self.extractor, writable)

    def ask(
        self,
        question: str,
        as_of: str | None = None,
        settings: RecallSettings | None = None,
        reader: RecollectionReader | None = None,
    ) -> Recollection:
        """Return the facts that may answer a question; see ``recall.Recall.ask``.

        Args:
            question: text of the question.
            as_of: a time; facts that held at its end are searched. None: facts that hold now.
            settings: settings of the search; None: the defaults.
            reader: answers the question from the facts (``QA.reader``); None: nothing does.

        Raises:
            UserError: there is no embedder, ``as_of`` is not a time, or the reader fails.
        """
        return _answered(self._recall.ask(question, as_of, settings), reader)

    def ask_both(
        self,
        question: str,
        as_of: str | None = None,
        settings: RecallSettings | None = None,
        reader: RecollectionReader | None = None,
    ) -> Recollection:
        """Return facts ranked by facts and episodes together; see ``recall.ask_both``.

        Raises:
            UserError: there is no embedder, or ``as_of`` is not a time.
        """
        from turngraph.data.memory_graph.recall.ask_both import ask_both

        return _answered(ask_both(self._recall, question, as_of, settings), reader)

    def ask_episodes(
        self,
        question: str,
        as_of: str | None = None,
        settings: RecallSettings | None = None,
        reader: RecollectionReader | None = None,
    ) -> Recollection:
        """Return episodes that may answer a question, best first; see ``Recall.ask_episodes``.

        Raises:
            UserError: there is no embedder, or ``as_of`` is not a time.
        """
        return _answered(self._recall.ask_episodes(question, as_of, settings), reader)

    def marked(self, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """Mark the facts that newer statements may have ended; see ``Recall.marked``.

        Raises:
            UserError: there is no embedder.
        """
        return self._recall.marked(facts)

    @cached_property
    def _recalls(self) -> RecallCache:
        from turngraph.data.memory_graph.plan.recall_cache import RecallCache

        return RecallCache()

    @cached_property
    def replies(self) -> ReplyCache:
        """Cache for the replies of planners that ask a language model; forgetting clears it."""
        from turngraph.data.memory_graph.plan.model_replies import ReplyCache
        from turngraph.data.memory_graph.upkeep.purge import last_deletion

        return ReplyCache(lambda: last_deletion(self.store))

    def clear_recalls(self) -> None:
        """Drop the cached recalls, and the cached vectors of questions."""
        self._recalls.clear()
        if "_recall" in self.__dict__:
            self._recall.forget_queries()

    def ask_planned(
        self,
        question: str,
        as_of: str | None = None,
        settings: PlanSettings | None = None,
        planner: Planner | None = None,
        read: Digester | None = None,
        on_step: OnStep | None = None,
        reader: RecollectionReader | None = None,
    ) -> Recollection:
        """Ask a question by a plan of steps, each of which uses what earlier ones found.

        Recalls are cached: a repeated question costs none until the graph changes. See
        ``plan.run_plan.ask_planned``.

        Args:
            question, as_of: as in ``ask``.
            settings: limits of the plan, and settings of the search; None: the defaults.
            planner: decides the steps; None: the rules, which need no model and read English.
            read: answers steps in place of the planner.
            on_step: called with each finished step.
            reader: as in ``ask``.

        Raises:
            UserError: there is no embedder, the question is blank, ``as_of`` is not a time, or
                the planner fails.
        """
        from turngraph.data.memory_graph.plan.rules_planner import RulesPlanner
        from turngraph.data.memory_graph.plan.run_plan import ask_planned

        planner = planner or RulesPlanner(self._recall)
        recollection = ask_planned(
            self._recall,
            planner,
            question,
            as_of,
            settings,
            cache=self._recalls,
            read=read,
            on_step=on_step,
        )
        return _answered(recollection, reader)

    def make_themes(
        self, lm: Lm | None = None, stop: Callable[[], bool] = lambda: False
    ) -> ThemesMade:
        """Bring the themes to the record's state; see ``make_themes.make_themes``.

        Raises:
            UserError: there is no embedder, a vector is zero or not finite, eigenvectors did not
                converge, or the graph cannot be written.
        """
        from turngraph.data.memory_graph.upkeep.make_themes import make_themes

        if self.embed is None:
            raise UserError(f"{self.store}: opened without an embedder, which themes need")
        return make_themes(self.store, self.embed, lm, stop)

    def themes(self, as_of: str | None = None) -> list[RecalledTheme]:
        """Return all themes, level 2 first, with the sentences that they quote.

        Args:
            as_of: a time; sentences that held at its end are quoted. None: those that hold now.

        Raises:
            UserError: ``as_of`` is not a time.
        """
        from turngraph.data.memory_graph.recall.held_quotes import list_themes

        return list_themes(self.store, second_of(as_of))

    def ask_themes(
        self,
        question: str,
        as_of: str | None = None,
        settings: AskThemes | None = None,
        reader: RecollectionReader | None = None,
    ) -> Recollection:
        """Return the themes of a question and what they say; see ``recall.Recall.ask_themes``.

        Raises:
            UserError: there is no embedder, or ``as_of`` is not a time.
        """
        return _answered(self._recall.ask_themes(question, as_of, settings), reader)

    def forget(
        self,
        episode: int | Iterable[int] | None = None,
        entity: str | int | None = None,
        source: str | None = None,
        dry_run: bool = False,
        wide: bool = False,
    ) -> Forgotten:
        """Erase episodes, an entity or a source from all files; see ``forget.forget``.

        Raises:
            UserError: not exactly one of ``episode``, ``entity`` and ``source`` is given, or the
                graph does not have it.
        """
        if not dry_run:
            self.clear_recalls()
            self.replies.clear()
        return forget(
            self.store, episode=episode, entity=entity, source=source, dry_run=dry_run, wide=wide
        )

    def to_forget(
        self,
        episode: int | Iterable[int] | None = None,
        entity: str | int | None = None,
        source: str | None = None,
        wide: bool = False,
    ) -> list[Listed]:
        """Return the first episodes that ``forget`` would erase; see ``forget.to_forget``.

        Raises:
            UserError: as ``forget``.
        """
        return to_forget(self.store, episode=episode, entity=entity, source=source, wide=wide)

    def other_mentions(self, entity: str | int) -> list[Mention]:
        """Return what ``forget`` leaves without ``wide``; see ``forget.other_mentions``.

        Raises:
            UserError: no object has the id, or several have the name.
        """
        return other_mentions(self.store, entity)

    def show(self, entity: str | int) -> Shown:
        """Return an object, by name or id, with the facts that hold now.

        Raises:
            UserError: no object has that name or id, or several have.
        """
        return show(self.store, entity)

    def history(self, entity: str | int) -> list[Fact]:
        """Return all facts of an object, also closed ones, in order of time.

        Raises:
            UserError: no object has that name or id, or several have.
        """
        return history(self.store, entity)

    def turns(self) -> list[Turn]:
        """Return the turns of chats and conversations in the order in which they came."""
        return turns(self.store)

    def merge(self, keep: str | int, other: str | int) -> int:
        """Merge two objects that are the same thing, and return the id of the remaining object.

        Raises:
            UserError: a name is unknown or ambiguous, or both are the same object.
        """
        return edit.merge(self.store, keep, other)

    def split(
        self,
        entity: str | int,
        new_name: str,
        episodes: Iterable[int] = (),
        facts: Iterable[int] = (),
    ) -> int:
        """Split an object that stands for two things, and return the id of the new object; see
        ``edit.split``.

        Raises:
            UserError: the object is unknown or ambiguous, or not in the facts to move.
        """
        return edit.split(self.store, entity, new_name, episodes, facts)

    def rename(self, entity: str | int, name: str) -> int:
        """Rename an object, and return its id; the old name stays an alias.

        Raises:
            UserError: the object is unknown or ambiguous, or the name is blank.
        """
        return edit.rename(self.store, entity, name)

    def add_alias(self, entity: str | int, name: str) -> int:
        """Add a name by which an object is found, and return its id.

        Raises:
            UserError: the object is unknown or ambiguous, or the name is another object's.
        """
        return edit.add_alias(self.store, entity, name)

    def undo(self) -> str:
        """Undo the last merge, split, rename or alias, and return its operation.

        Raises:
            UserError: there is nothing to undo, or later facts depend on it.
        """
        return journal.undo(self.store)

    def stats(self) -> Stats:
        """Return counts and file sizes."""
        from turngraph.data.memory_graph.upkeep.stats import stats

        return stats(self.store)

    def check(self, rebuild: bool = False) -> list[Problem]:
        """Return the problems of the graph.

        Args:
            rebuild: rebuild derived data first.

        Raises:
            UserError: the graph cannot be written (``rebuild``).
        """
        from turngraph.data.memory_graph.upkeep import check

        if rebuild:
            check.rebuild(self.store)
        return check.check(self.store)

    def backup(self, path: str | Path) -> None:
        """Copy the last committed state to a new file, while others may read and write.

        Raises:
            UserError: the file exists or cannot be written.
        """
        from turngraph.data.memory_graph.upkeep.backup import backup

        backup(self.store, path)


def _answered(recollection: Recollection, reader: RecollectionReader | None) -> Recollection:
    """Return a recollection, with the reader's answer if there is a reader."""
    return (
        recollection if reader is None else replace(recollection, answer=reader.read(recollection))
    )
