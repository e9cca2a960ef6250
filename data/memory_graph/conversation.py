"""Fills and queries the memory graph of one conversation, turn by turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.data.embedding import Embed
from turngraph.data.memory_graph.extract.english_rules import unread_line
from turngraph.data.memory_graph.extract.given import GivenExtractor
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import (
    Episode,
    Extraction,
    Fact,
    Span,
    Thesis,
    Triplet,
)
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.plan.steps import Digester, Planner, PlanSettings
from turngraph.data.memory_graph.recall.plan_trace import PlanTrace
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.recollection import Recollection, each_once
from turngraph.data.memory_graph.recall.traverse_settings import Traversal
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.record.select_episodes import episodes_of_origins
from turngraph.data.memory_graph.times import local_now, now
from turngraph.data.memory_graph.turns import TurnExtractor, answer_origin, chat_episodes
from turngraph.data.types import Entity, Evidence, Interaction, Retrieved, query

if TYPE_CHECKING:  # the extra rdf, which few need
    from turngraph.data.memory_graph.ontology.compute import Computed
    from turngraph.data.memory_graph.ontology.compute import Planner as ComputePlanner
    from turngraph.data.memory_graph.ontology.lens import Lens
    from turngraph.data.memory_graph.plan.run_plan import OnStep

logger = logging.getLogger(__name__)

NUM_EVIDENCE = 10
"""Number of a turn's best passages that are remembered."""
NUM_FACTS = 50
"""Largest number of recalled facts, the best of which enter the turn's evidence E_t."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """State of a ``ConversationGraph`` between two turns; of growing lists, only the length."""

    num_turns: int
    topic: tuple[str, ...]
    evidence: Mapping[int, Sequence[Retrieved]]
    num_texts: int
    num_ids: int


class ConversationGraph:
    """In-memory graph of the statements and the evidence of one conversation.

    Args:
        config: settings of remembering and recalling.
        embed: sentence encoder; needed if the config's ``vectors`` are ``encoder``.
    """

    def __init__(self, config: MemoryGraphConfig, embed: Embed | None) -> None:
        self.config = config
        self.settings = RecallSettings(
            traversal=Traversal(config.mixture),
            forbidden=("E",),  # theses are recalled, not whole episodes
            num_facts=NUM_FACTS,
            by_similarity=False,  # a question without a name gets the turn before in front
        )
        self.plan_settings = PlanSettings(num_facts=NUM_FACTS, recall=self.settings)
        self.planned: PlanTrace | None = None
        """Plan of the last question; None: it was asked without a plan."""
        self.computed: Computed | None = None
        """Computed answer to the last question; None: nothing was computed."""
        self._lens: Lens | None = None
        self.planner: Planner | None = None
        """Decides the steps of planned questions; None: the English rules."""
        self.plans: ComputePlanner | None = None
        """Plans computed answers for questions that the rules cannot plan; None: they get none."""
        self.read: Digester | None = None
        """Answers steps in place of the planner."""
        self.on_step: OnStep | None = None
        """Called with each finished step of a plan."""
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

    @property
    def embed(self) -> Embed | None:
        """Sentence encoder of the graph; None if it has none."""
        return self.graph.embed

    def close(self) -> None:
        """Close the graph."""
        self.graph.close()

    def release(self) -> None:
        """Free the data that questions loaded into memory; the next question loads it again."""
        self._lens = None
        self.graph.release()

    def note(self, turn: int, retrieved: Sequence[Retrieved]) -> None:
        """Record what was retrieved for a turn, to remember it when the turn is finished."""
        self._evidence[turn] = retrieved[:NUM_EVIDENCE]
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
        """Write one episode with a thesis for question and answer, and one for each passage."""
        said = " ".join(f"{question} {answer}".split())
        stated = [(said, self.names.names(question, answer, self._topic))] if answer else []
        for item in self._evidence.pop(turn, ()):
            passage = item.evidence
            names = [entity.label for entity in passage.entities] or self.names.entities(
                passage.text
            )
            stated.append((passage.text, tuple(names)))
        stated = list({text: (text, names) for text, names in stated if text.strip()}.values())
        for text, _ in stated:
            self._first_turn.setdefault(text, turn)
        if stated:
            theses = [
                Thesis(text, names, span=span)
                for (text, names), span in zip(
                    stated, spans([text for text, _ in stated]), strict=True
                )
            ]
            episode = Episode("\n".join(text for text, _ in stated), origin=self._origins(turn)[0])
            triplets = self._triplets(theses) if self.config.compute == "rules" else ()
            self._given.hold(episode, Extraction(triplets, tuple(theses)))
            self.graph.remember_many([episode])

    def _triplets(self, theses: Sequence[Thesis]) -> tuple[Triplet, ...]:
        """Return the triplets that the rules read in texts, each with the span of its text."""
        read = self.names.extract([Episode(thesis.text) for thesis in theses])
        return tuple(
            replace(triplet, span=thesis.span)
            for thesis, extraction in zip(theses, read, strict=True)
            for triplet in extraction.triplets
        )

    def _origins(self, turn: int) -> tuple[str, ...]:
        """Return the origins of a turn's episodes."""
        return (str(turn),)

    def state(self) -> GraphState:
        """Return the state that ``restore`` takes."""
        return GraphState(
            num_turns=self.num_turns,
            topic=self._topic,
            evidence=dict(self._evidence),
            num_texts=len(self._first_turn),
            num_ids=len(self._ids),
        )

    def restore(self, state: GraphState) -> None:
        """Return to an earlier state, and forget the turns remembered since then.

        Raises:
            UserError: the graph cannot be written, or another process prevents its files from
                being purged; the record has then forgotten the turns, and the same call completes
                the purge.
        """
        origins = [
            one for turn in range(state.num_turns, self.num_turns) for one in self._origins(turn)
        ]
        with self.graph.store.clear_errors():
            episodes = episodes_of_origins(self.graph.store.db, origins)
        if episodes:
            self.graph.forget(episode=episodes)
        # a graph that could not write the turns before has fewer of them than the state says
        self.num_turns, self._topic = min(self.num_turns, state.num_turns), state.topic
        self._evidence = dict(state.evidence)
        self._first_turn = dict(islice(self._first_turn.items(), state.num_texts))
        self._ids = dict(islice(self._ids.items(), state.num_ids))
        self.planned = self.computed = None

    def recall(self, question: str, interaction: Interaction, turn: int) -> list[Retrieved]:
        """Return the facts that may answer a question, best first; [] if the graph is empty.

        With ``compute`` the computed statement comes first, then the facts that it counts.

        Args:
            question: text of the question; if it names no object of the graph, it is asked again
                with the previous turn in front.
            interaction: all finished turns, which are remembered first.
            turn: index of the question's turn.
        """
        self.remember(interaction)
        self.planned = self.computed = None
        if not self.graph.store.revision:
            return []
        ask = self._ask_planned if self.config.plan == "rules" else self.ask
        recollection = ask(question, interaction)
        recalled = [
            Retrieved(self._evidence_of(passage), fact.score, self._from_turn(fact, turn))
            for fact, passage in zip(recollection.facts, recollection.evidence(), strict=True)
        ]
        computed = self._compute(question, turn) if self.config.compute == "rules" else []
        counted = {item.evidence.text for item in computed}
        return computed + [item for item in recalled if item.evidence.text not in counted]

    def _compute(self, question: str, turn: int) -> list[Retrieved]:
        """Return the computed statement and the facts that it counts; [] if nothing is computed."""
        from turngraph.data.memory_graph.ontology.compute import compute
        from turngraph.data.memory_graph.ontology.lens import Lens
        from turngraph.data.memory_graph.ontology.ontology import load_ontology
        from turngraph.data.memory_graph.ontology.statement import computed_evidence
        from turngraph.data.memory_graph.ontology.typed_plan import NoPlan

        if self._lens is None:
            self._lens = Lens(self.graph.store, load_ontology())
        try:
            self.computed = compute(
                self._lens, question, planner=self.plans, mark=self.graph.marked
            )
        except NoPlan:  # the recalled facts alone are returned
            return []
        first_turn = self._first_turn
        return [
            Retrieved(self._evidence_of(passage), 1.0, first_turn.get(passage.text, turn))
            for passage in computed_evidence(question, self.computed)
        ]

    def ask(self, question: str, interaction: Interaction) -> Recollection:
        """Return the theses that may answer a question, best first.

        A question that names no object of the graph is asked again with the previous turn in front.
        """
        recollection = self.graph.ask(question, settings=self.settings)
        if not recollection.entities and interaction:
            recollection = self.graph.ask(query(interaction[-1:], question), settings=self.settings)
        return recollection

    def _ask_planned(self, question: str, interaction: Interaction) -> Recollection:
        """Ask by a plan; without an answer, ask again with the previous turn in front."""
        recollection = self._by_plan(question)
        if recollection.no_answer and interaction:
            recollection = self._by_plan(query(interaction[-1:], question))
        self.planned = recollection.plan
        return recollection

    def _by_plan(self, question: str) -> Recollection:
        return self.graph.ask_planned(
            question,
            settings=self.plan_settings,
            planner=self.planner,
            read=self.read,
            on_step=self.on_step,
        )

    def _from_turn(self, fact: Fact, turn: int) -> int:
        return self._first_turn.get(fact.text, turn)

    def _evidence_of(self, passage: Evidence) -> Evidence:
        """Return a recalled fact with the entity ids of the conversation's evidence."""
        entities = {
            (id_ := self._ids.get(alias(entity.label), entity.id)): Entity(
                id_, entity.label, entity.mentions
            )
            for entity in passage.entities
        }
        return Evidence(passage.id, passage.text, passage.source, tuple(entities.values()))


class ChatGraph(ConversationGraph):
    """Persistent memory graph of a chat, which remembers what its user says.

    The model's answers are kept as history only and never recalled.

    Args:
        path: path of the database.
        config, embed: as in ``ConversationGraph``.
        read_only: whether to remember nothing.
    """

    def __init__(
        self,
        path: str | Path,
        config: MemoryGraphConfig,
        embed: Embed | None,
        read_only: bool = False,
    ) -> None:
        self.path, self.read_only = path, read_only
        self.began, self._key = now(), uuid4().hex
        super().__init__(config, embed)

    def begin(self) -> None:
        """Begin a new chat, whose turns count from 0 and which has no topic yet."""
        self.began, self._key = now(), uuid4().hex
        self.num_turns, self._topic = 0, ()
        self._evidence, self._first_turn, self._ids = {}, {}, {}
        self.planned = self.computed = None

    @property
    def identity(self) -> tuple[str, str]:
        """Start time of the chat and key of its turns in the graph: arguments of ``go_on``."""
        return self.began, self._key

    def go_on(self, began: str, key: str) -> None:
        """Go on with a chat that another process began."""
        self.began, self._key = began, key

    def num_remembered(self, noted: int, num_turns: int) -> int:
        """Return how many of a chat's turns have been given to the graph.

        Args:
            noted: number of turns that the caller has noted as remembered. The caller notes a turn
                after the graph has remembered it, so the graph has more turns if a process was
                killed in between. A turn below this number without episodes has been forgotten.
            num_turns: number of the chat's turns.
        """
        if self.read_only:
            return num_turns
        with self.graph.store.clear_errors():
            db = self.graph.store.db
            while noted < num_turns and episodes_of_origins(db, self._origins(noted)):
                noted += 1
        return min(noted, num_turns)

    def _open(self, embed: Embed | None) -> MemoryGraph:
        return MemoryGraph.open(self.path, embed, self.names, read_only=self.read_only)

    def ask(self, question: str, interaction: Interaction) -> Recollection:
        """Return what ``MemoryGraph.ask_both`` ranks best, each statement once.

        Facts and whole texts are ranked together, as by the command ``memory ask``: the texts that
        the user remembered otherwise are in the same graph. A question that names no object of the
        graph is asked again with the previous turn in front.

        Of 150 questions about LoCoMo's conversations, each after the one before, evidence is among
        the first ten for .808 (``memory_graph answers --over chat --benchmarks locomo --questions
        150``); by ``MemoryGraph.ask``, before questions had their own encoder, for .658.
        """
        recollection = self.graph.ask_both(question)
        if not recollection.entities and interaction:
            recollection = self.graph.ask_both(query(interaction[-1:], question))
        return replace(recollection, facts=tuple(each_once(recollection.facts)))

    def _origins(self, turn: int) -> tuple[str, ...]:
        origin = f"chat {self._key} {turn}"  # two chats may begin in the same second
        return origin, answer_origin(origin)

    def _remember(self, turn: int, question: str, answer: str) -> None:
        self._evidence.pop(turn, None)  # a chat keeps what was said, not what was retrieved
        if not self.read_only:
            source, origin = f"chat {self.began}", self._origins(turn)[0]
            before = self.names.unread.copy()
            self.graph.remember_many(chat_episodes(question, answer, local_now(), source, origin))
            if unread := self.names.unread - before:
                logger.info("%s; they are kept as they are", unread_line(unread))


def spans(texts: Sequence[str]) -> list[Span]:
    """Return the span of each text, in characters, within the texts joined by line ends."""
    places: list[Span] = []
    begin = 0
    for text in texts:
        places.append((begin, begin + len(text)))
        begin += len(text) + 1
    return places
