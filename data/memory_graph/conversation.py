"""The memory graph of one conversation, filled turn by turn; a turn sees what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from turngraph.configs.schema import MemoryGraphConfig
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Extraction, Fact, Span, Thesis
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.record.select_episodes import episodes_of_origins
from turngraph.data.memory_graph.times import now
from turngraph.data.memory_graph.turns import TurnExtractor, turn_episode
from turngraph.data.types import Entity, Evidence, Interaction, Retrieved, query


class ConversationGraph:
    """What one conversation has said and retrieved, in a graph of its own that no file holds.

    Args:
        config: how much is remembered and recalled.
        embed: texts to unit vectors; needed where the config's ``vectors`` are ``encoder``.
    """

    def __init__(self, config: MemoryGraphConfig, embed: Embed | None) -> None:
        self.config = config
        self.settings = RecallSettings(
            Traversal(config.mixture),
            config.forbidden,
            config.num_facts,
            min_similarity=config.min_similarity,
        )
        self.names = TurnExtractor()
        self.num_turns = 0
        self._topic: tuple[str, ...] = ()
        self._evidence: dict[int, Sequence[Retrieved]] = {}
        self._first_turn: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._given = GivenExtractor()
        self.graph = self._open(word_vectors if config.vectors == "words" else embed)

    def _open(self, embed: Embed | None) -> MemoryGraph:
        return MemoryGraph.open(":memory:", embed, self._given)

    def close(self) -> None:
        """Close the graph."""
        self.graph.close()

    def note(self, turn: int, retrieved: Sequence[Retrieved]) -> None:
        """What was retrieved for a turn; it is remembered when the turn is finished."""
        self._evidence[turn] = retrieved[: self.config.num_evidence]
        for item in retrieved:
            for entity in item.evidence.entities:
                self._ids.setdefault(alias(entity.label), entity.id)

    def remember(self, interaction: Interaction) -> None:
        """Remember the turns that were finished since the last call.

        Args:
            interaction: all finished turns.
        """
        for turn in range(self.num_turns, len(interaction)):
            question, answer = interaction[turn]
            self._remember(turn, question, answer)
            self._topic = self.names.names(question, answer, self._topic)
        self.num_turns = max(self.num_turns, len(interaction))

    def _remember(self, turn: int, question: str, answer: str) -> None:
        """One episode: a thesis of question and answer, and one of each passage."""
        said = " ".join(f"{question} {answer}".split())
        found = [(said, self.names.names(question, answer, self._topic))] if answer else []
        for item in self._evidence.pop(turn, ()):
            passage = item.evidence
            names = [entity.label for entity in passage.entities] or self.names.entities(
                passage.text
            )
            found.append((passage.text, tuple(names)))
        found = list({text: (text, names) for text, names in found if text.strip()}.values())
        for text, _ in found:
            self._first_turn.setdefault(text, turn)
        if found:
            theses = [
                Thesis(text, names, span=span)
                for (text, names), span in zip(
                    found, spans([text for text, _ in found]), strict=True
                )
            ]
            episode = Episode("\n".join(text for text, _ in found), origin=self._origin(turn))
            self._given.hold(episode, Extraction(theses=tuple(theses)))
            self.graph.remember_many([episode])

    def _origin(self, turn: int) -> str:
        """By which a turn's episode is known again."""
        return str(turn)

    def state(self) -> Any:
        """What ``restore`` needs to come back here."""
        notes = dict(self._evidence), dict(self._first_turn), dict(self._ids)
        return self.num_turns, self._topic, notes

    def restore(self, state: Any) -> None:
        """Take back all that came since a state, and forget the turns remembered since.

        Raises:
            ValueError: the graph cannot be written; or another process kept its files from
                forgetting: then the record has forgotten, and the same call takes back the rest.
        """
        num_turns, topic, notes = state
        origins = [self._origin(turn) for turn in range(num_turns, self.num_turns)]
        with self.graph.store.clear_errors():
            episodes = episodes_of_origins(self.graph.store.db, origins)
        if episodes:
            self.graph.forget(episode=episodes)
        self.num_turns, self._topic = num_turns, topic
        self._evidence, self._first_turn, self._ids = map(dict, notes)

    def recall(self, question: str, interaction: Interaction, turn: int) -> list[Retrieved]:
        """The facts that may answer a question, best first; none before anything was said.

        Args:
            question: as it was asked; where nothing that it names is known, the turn before says
                what it is about.
            interaction: all finished turns; they are remembered first.
            turn: the turn that asks.
        """
        self.remember(interaction)
        if not self.graph.store.revision:
            return []
        found = self.graph.ask(question, settings=self.settings)
        if not found.entities and interaction:
            found = self.graph.ask(query(interaction[-1:], question), settings=self.settings)
        return [
            Retrieved(self._evidence_of(passage), fact.score, self._from_turn(fact, turn))
            for fact, passage in zip(found.facts, found.evidence(), strict=True)
        ]

    def _from_turn(self, fact: Fact, turn: int) -> int:
        return self._first_turn.get(fact.text, turn)

    def _evidence_of(self, passage: Evidence) -> Evidence:
        """A recalled fact with the ids that its entities have in the conversation's evidence."""
        entities = {
            (id_ := self._ids.get(alias(entity.label), entity.id)): Entity(
                id_, entity.label, entity.mentions
            )
            for entity in passage.entities
        }
        return Evidence(passage.id, passage.text, passage.source, tuple(entities.values()))


class ChatGraph(ConversationGraph):
    """A person's memory graph in a chat: it was there before, and keeps what is said.

    Args:
        path: of the database.
        config, embed: as of a ``ConversationGraph``.
    """

    def __init__(self, path: str | Path, config: MemoryGraphConfig, embed: Embed | None) -> None:
        self.path, self.began, self._key = path, now(), uuid4().hex
        super().__init__(config, embed)

    def _open(self, embed: Embed | None) -> MemoryGraph:
        return MemoryGraph.open(self.path, embed, self.names)

    def _origin(self, turn: int) -> str:
        return f"chat {self._key} {turn}"  # two chats may begin in the same second

    def _remember(self, turn: int, question: str, answer: str) -> None:
        source, origin = f"chat {self.began}", self._origin(turn)
        topic = self.names.topic(question, self._topic)
        episode = turn_episode(question, answer, now(), source, origin, topic=topic)
        self.graph.remember_many([episode])


def spans(texts: Sequence[str]) -> list[Span]:
    """Where texts stand that are joined by line ends."""
    found: list[Span] = []
    at = 0
    for text in texts:
        found.append((at, at + len(text)))
        at += len(text) + 1
    return found
