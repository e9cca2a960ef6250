"""Builds the example of a turn from start to end: query, E_t, memory, spans, graph, token ids."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.schema import EvidenceConfig
from turngraph.configs.words import plural
from turngraph.data.embedding import Embed
from turngraph.data.evidence_graph import evidence_graph
from turngraph.data.graph.chain_graph import ChainGraph, CutEdges, TokenisedPassage
from turngraph.data.graph.mentions import find_answers
from turngraph.data.jsonlines import join_pools
from turngraph.data.prompt import Prompt
from turngraph.data.retrieval.bm25 import cut_query
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.token_cache import TokenCache
from turngraph.data.turn_retrieval import Pool, TurnRetrieval, needs_embed, turn_query
from turngraph.data.types import (
    COMPUTED_ID,
    Answer,
    Conversation,
    Evidence,
    Interaction,
    Query,
    Retrieved,
    gold_interaction,
    query,
    target_answer,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from turngraph.data.corpus.corpus import CorpusIndex

logger = logging.getLogger(__name__)
LONGEST_PASSAGE = 2048
"""Most tokens of a passage where ``max_nodes`` sets no limit: a text without ends of sentences,
such as a file in base64, would be longer than the model's positions."""


@dataclass(frozen=True, slots=True)
class Example:
    """One turn as the model reads it, with the data that scoring its answer needs.

    Args:
        conversation: the conversation.
        turn: index of the turn, from 0.
        prefix_ids: token ids before the evidence.
        graph: the evidence graph. Its nodes are the tokens of the passages and, with
            ``evidence.graph: reader``, of Q_t.
        suffix_ids: token ids after the evidence, up to ``Answer:``.
        target_ids: the gold answer and the end token; empty if there is no gold answer.
        evidence: E_t as given to the model, best first.
        answer_sources: sources of the passages of E_t that contain gold answers; empty unless E_t
            contains all of them.
        dialogue_start: index in ``prefix_ids`` of the dialogue's first token, which is the first
            node of the question; None: the dialogue follows the evidence.
        alone: the same question and evidence without the dialogue; None: there is no dialogue, or
            the builder's ``alone`` is False.
    """

    conversation: Conversation
    turn: int
    prefix_ids: list[int]
    graph: ChainGraph
    suffix_ids: list[int]
    target_ids: list[int]
    evidence: list[Retrieved]
    answer_sources: list[str]
    dialogue_start: int | None = None
    alone: Example | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Id of the conversation and of the turn."""
        return self.conversation.id, self.conversation.turns[self.turn].id

    @property
    def question(self) -> str:
        """The current question."""
        return self.conversation.turns[self.turn].question

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the input, gold answer included."""
        num_evidence = len(self.graph.prompt_ids)
        return len(self.prefix_ids) + num_evidence + len(self.suffix_ids) + len(self.target_ids)

    def to_pyg(self) -> Data:
        """Return the evidence graph as PyTorch Geometric's ``Data``, for its layers and loaders.

        Returns:
            ``input_id`` [N], the LM's token id of each node; ``edge_index`` [2, E], source row and
            target row; ``edge_type`` [E], indices into ``EDGE_TYPES``; ``passage`` [N], the index
            in ``evidence`` of each node's passage, -1 for the question's nodes; ``pos`` [N], each
            node's position in its token chain. All are int64. Without any edges, every node is a
            passage and a chain of its own.
        """
        import torch
        from torch_geometric.data import Data

        graph, num_nodes = self.graph, len(self.graph.node_ids)
        chain = graph.chain_index()
        is_first = np.diff(chain, prepend=-1) > 0
        first = np.flatnonzero(is_first)
        arrays = {
            "input_id": graph.node_ids,
            "edge_index": graph.edge_index,
            "edge_type": graph.edge_types,
            "passage": np.where(np.arange(num_nodes) < len(graph.prompt_ids), chain, -1),
            "pos": np.arange(num_nodes) - first[chain],
        }
        tensors = {
            name: torch.from_numpy(np.asarray(values, np.int64)) for name, values in arrays.items()
        }
        return Data(num_nodes=num_nodes, **tensors)


@dataclass
class ExampleBuilder:
    """Builds examples from what ``turn_retrieval`` finds, with the graph of ``evidence_graph``.

    Args:
        prompt: prompt assembly for the model's tokenizer.
        config: retrieval, memory and graph settings.
        embed: the sentence encoder, for ``memory: rerank``, for retrievers other than bm25 and
            links, and for memory graphs.
        cut: edges to remove from every graph, or ``shuffle`` to rewire them, as a control.
        memory_graph: settings of the conversations' memory graphs; None: no memory graphs.
        mentions: whether to record which nodes mention which entity; needs question nodes.
        alone: whether to build examples with a dialogue also without it.
        max_passages: most passages of an example, chosen by ``shortened``, which looks at the gold
            answers, for training; None: all that were found.

    Attributes:
        counts: totals over the examples built, for the log.
        retrieval: retrieval, with cached indexes of pools.
    """

    prompt: Prompt
    config: EvidenceConfig
    embed: Embed | None = None
    cut: CutEdges = "nothing"
    memory_graph: MemoryGraphConfig | None = None
    mentions: bool = False
    alone: bool = False
    max_passages: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    retrieval: TurnRetrieval = field(default_factory=TurnRetrieval)
    _tokens: TokenCache = field(default_factory=TokenCache)

    @property
    def needs_embed(self) -> bool:
        """Whether building examples needs a sentence encoder."""
        graph = self.memory_graph
        return needs_embed(self.config) or (graph is not None and graph.vectors == "encoder")

    @property
    def num_cached(self) -> dict[str, int]:
        """Number of cached indexes of pools and of cached tokens of passages."""
        return {"indexes": len(self.retrieval.indexes), "passage_tokens": self._tokens.num_tokens}

    def memory(self, conversation: Conversation) -> EvidenceMemory:
        """Make an empty evidence memory for a conversation, with a memory graph if it has one."""
        config, graph = self.config, None
        if self.memory_graph is not None:
            from turngraph.data.memory_graph.conversation import ConversationGraph

            graph = ConversationGraph(self.memory_graph, self.embed)
        seed = f"0/{conversation.id}"
        return EvidenceMemory(config.memory, embed=self.embed, seed=seed, graph=graph)

    def conversation(
        self,
        conversation: Conversation,
        turns: Collection[int] | None = None,
        pool: Pool | None = None,
    ) -> list[Example]:
        """Build the examples of a conversation, with gold history.

        Args:
            conversation: evidence is retrieved for its turns in order, which fills the memory.
            turns: indices of the turns to build; None: all.
            pool: pool that replaces the conversation's own, as a control.
        """
        memory, examples = self.memory(conversation), []
        wanted = range(len(conversation.turns)) if turns is None else turns
        for turn in range(max(wanted, default=-1) + 1):
            interaction = gold_interaction(conversation, turn)
            if turn in wanted:
                examples.append(self.turn(conversation, turn, interaction, memory, pool))
            else:
                memory.add(self.retrieve(conversation, turn, interaction, pool)[1])
        return examples

    def retrieve(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        pool: Pool | None = None,
    ) -> tuple[Query, list[Retrieved]]:
        """Return Q_t, as one text or as turns with weights, and the best passages."""
        current = conversation.turns[turn]
        if pool is None:
            pool = join_pools(conversation.evidence, current.evidence)
        q_t = turn_query(interaction, current.question, self.config)
        return q_t, self.retrieval.search(pool, q_t, turn, self.config, self.embed)

    @property
    def corpus(self) -> CorpusIndex | None:
        """The index of ``evidence.corpus``; None if there is none.

        Raises:
            UserError: the corpus cannot be opened, or its vectors are of another encoder.
        """
        return self.retrieval.corpus(self.config, self.embed)

    def turn(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        memory: EvidenceMemory,
        pool: Pool | None = None,
        num_left_out: int = 0,
    ) -> Example:
        """Build the example of one turn, and add what was retrieved for it to the memory.

        Args:
            conversation: the conversation; its gold answers are used for target and statistics
                only.
            turn: index of the turn, from 0.
            interaction: the finished turns, with gold or predicted answers.
            memory: the conversation's evidence memory after the earlier turns.
            pool: pool that replaces the conversation's own, as a control.
            num_left_out: oldest turns that the prompt leaves out.
        """
        current = conversation.turns[turn]
        q_t, retrieved = self.retrieve(conversation, turn, interaction, pool)
        recalled = self._recall(memory, current.question, interaction, retrieved, turn)
        kept = self._cut_to_budget(retrieved[: self.config.top_k - len(recalled)], recalled)
        evidence = memory.merge(kept, q_t, lambda merged: self._fits([*merged, *recalled]))
        known = {item.evidence.text for item in evidence}
        evidence += [item for item in recalled if item.evidence.text not in known]
        evidence.sort(key=lambda item: item.evidence.id != COMPUTED_ID)
        if self.max_passages is not None:
            evidence = shortened(evidence, current.answers, self.max_passages)
        memory.add(retrieved)
        self._count(evidence, turn)
        passages = [item.evidence for item in evidence]
        target = target_answer(current.answers)
        said = interaction[num_left_out:], current.question
        prefix_ids, suffix_ids = self.prompt.parts(*said)
        heard = said[0] if self.prompt.question_first else interaction
        graph = self.graph(passages, self.encoded_question(current.question, heard))
        if self.prompt.question_first and graph.mentions is not None:
            tokens = self.tokenise(passages)[1]
            places = find_answers(passages, tokens, current.answers)
            graph = replace(graph, mentions=replace(graph.mentions, answers=places))
        built = Example(
            conversation=conversation,
            turn=turn,
            prefix_ids=prefix_ids,
            graph=graph,
            suffix_ids=suffix_ids,
            target_ids=self.prompt.target_ids(target) if current.answers else [],
            evidence=evidence,
            answer_sources=answer_in_evidence(current.answers, passages),
            dialogue_start=len(self.prompt.prefix_ids) if self.prompt.question_first else None,
        )
        if self.alone and heard:
            built = replace(built, alone=self.with_dialogue(built, ()))
        return built

    def with_dialogue(self, example: Example, interaction: Interaction) -> Example:
        """Return an example with the same evidence and these turns as its dialogue."""
        prefix_ids, suffix_ids = self.prompt.parts(interaction, example.question)
        changed = replace(example, prefix_ids=prefix_ids, suffix_ids=suffix_ids)
        if not self.prompt.question_first:
            return changed
        passages = [item.evidence for item in example.evidence]
        said = self.encoded_question(example.question, interaction)
        return replace(changed, graph=self.graph(passages, said))  # the dialogue's tokens are nodes

    def _recall(
        self,
        memory: EvidenceMemory,
        question: str,
        interaction: Interaction,
        retrieved: Sequence[Retrieved],
        turn: int,
    ) -> list[Retrieved]:
        """Recall facts for E_t: up to the memory graph's share, more if the pool is small."""
        if memory.graph is None:
            return []
        config, share = self.config, memory.share
        slots = max(int(config.top_k * share + 1e-9), config.top_k - len(retrieved))
        best = {item.evidence.text for item in retrieved[: config.top_k - slots]}
        facts = memory.graph.recall(question, interaction, turn)
        recalled = [item for item in facts if item.evidence.text not in best][:slots]
        return self._cut_to_budget(recalled, share=share if retrieved else 1.0)

    def encoded_question(self, question: str, interaction: Interaction) -> str:
        """Return the text whose tokens become question nodes; "" for none."""
        if self.prompt.question_first:
            return self.prompt.dialogue(interaction, question)
        if self.config.graph == "reader":
            return cut_query(query(interaction, question))
        return ""

    def graph(self, passages: Sequence[Evidence], question: str = "") -> ChainGraph:
        """Build the graph of passages.

        Args:
            passages: the evidence, best first.
            question: text whose tokens become question nodes; "" for none.
        """
        texts, tokens = self.tokenise(passages)
        asked = None
        if question:
            plain = question if self.prompt.question_first else self.prompt.plain(question)
            asked = plain, self.prompt.tokenise_question(plain)
        graph = evidence_graph(
            texts,
            tokens,
            self.config,
            question=asked,
            cut=self.cut,
            entities_of=passages if self.mentions else None,
        )
        self.counts["entity edges"] += graph.num_entity_edges
        self.counts["nodes"] += len(graph.node_ids)
        self.counts["graphs"] += 1
        num_cut = sum(passage.num_cut > 0 for passage in tokens)
        if num_cut and self.config.max_nodes is None:
            logger.warning(
                "of %s only the first %d tokens are read",
                plural(num_cut, "passage"),
                LONGEST_PASSAGE,
            )
        self.counts["passages truncated"] += num_cut
        self.counts["tokens truncated"] += sum(passage.num_cut for passage in tokens)
        return graph

    def prepare(self, pool: Pool) -> None:
        """Make the index of a pool before a question needs it; any thread may call this."""
        self.retrieval.index(pool, self.config, self.embed)

    def tokenise(
        self, passages: Sequence[Evidence]
    ) -> tuple[list[Evidence], list[TokenisedPassage]]:
        """Break up prompt markers in passages, and tokenise the first tokens of each.

        They are at most ``max_nodes``; without it, at most ``LONGEST_PASSAGE``.
        """
        limit = self.config.max_nodes or LONGEST_PASSAGE
        return self._tokens.passages(self.prompt, passages, limit)

    def sizes(self, retrieved: Sequence[Retrieved]) -> list[int]:
        """Count the tokens of passages; each takes one position in the prompt."""
        _, tokens = self.tokenise([item.evidence for item in retrieved])
        return [len(passage.ids) for passage in tokens]

    def _fits(self, retrieved: Sequence[Retrieved]) -> bool:
        limit = self.config.max_nodes
        return limit is None or sum(self.sizes(retrieved)) <= limit

    def _cut_to_budget(
        self, retrieved: list[Retrieved], others: Sequence[Retrieved] = (), share: float = 1.0
    ) -> list[Retrieved]:
        """Drop the lowest passages until the rest and ``others`` fit into a share of the budget."""
        if self.config.max_nodes is None:
            return retrieved
        limit = self.config.max_nodes * share - sum(self.sizes(others))
        num_kept = sum(total <= limit for total in accumulate(self.sizes(retrieved)))
        self.counts["passages dropped"] += len(retrieved) - num_kept
        return retrieved[:num_kept]

    def _count(self, evidence: Sequence[Retrieved], turn: int) -> None:
        self.counts["passages"] += len(evidence)
        self.counts["passages from memory"] += sum(item.from_turn < turn for item in evidence)

    def log_counts(self) -> None:
        """Log mean sizes, passages from memory, and dropped and truncated passages."""
        counts = self.counts
        num = max(counts["graphs"], 1)
        logger.info(
            "%s: mean %.0f nodes, %.1f entity edges, %.1f passages (%.1f from memory); "
            "%s dropped and %d truncated (%s) by max_nodes %s",
            plural(counts["graphs"], "graph"),
            counts["nodes"] / num,
            counts["entity edges"] / num,
            counts["passages"] / num,
            counts["passages from memory"] / num,
            plural(counts["passages dropped"], "passage"),
            counts["passages truncated"],
            plural(counts["tokens truncated"], "token"),
            self.config.max_nodes,
        )


def shortened(items: list[Retrieved], answers: Sequence[Answer], most: int) -> list[Retrieved]:
    """Return the first ``most`` passages of a training question, one with an answer among them.

    If none of them has an answer, the first later passage that has one replaces the last of them,
    so that fewer passages cost no answer to train on.
    """
    holds = (any(answer_in_evidence([a], [item.evidence]) for a in answers) for item in items)
    first = next((index for index, held in enumerate(holds) if held), 0)
    return items[:most] if first < most else [*items[: most - 1], items[first]]
