"""Builds the example of a turn from start to end: query, E_t, memory, spans, graph, token ids."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.schema import EvidenceConfig
from turngraph.configs.words import plural
from turngraph.data.embedding import Embed
from turngraph.data.graph.chain_graph import (
    ChainGraph,
    CutEdges,
    TokenisedPassage,
    chain_graph,
    cut_edges,
    node_starts,
    span_nodes,
)
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.graph.graph_edges import more_edges
from turngraph.data.graph.mentions import find_answers, find_mentions
from turngraph.data.graph.rewire import shuffle_entity_edges
from turngraph.data.jsonlines import join_pools
from turngraph.data.prompt import Prompt
from turngraph.data.retrieval.bm25 import EvidenceIndex, cut_query
from turngraph.data.retrieval.dense import DenseIndex, FusedIndex, Index
from turngraph.data.retrieval.evidence_memory import EvidenceMemory
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse_retrieved
from turngraph.data.scoring.metrics import answer_in_evidence
from turngraph.data.token_cache import TokenCache
from turngraph.data.types import (
    COMPUTED_ID,
    Conversation,
    Evidence,
    Interaction,
    Query,
    Retrieved,
    gold_interaction,
    query,
    target_answer,
    weighted_query,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from turngraph.data.corpus.corpus import Corpus, CorpusIndex

logger = logging.getLogger(__name__)
MAX_INDEXES = 256
"""Indexes of pools that are cached, mostly of finished conversations; the oldest is dropped."""


@dataclass(frozen=True, slots=True)
class Example:
    """One turn as the model reads it, with the data that scoring its answer needs.

    Args:
        conversation: the conversation.
        turn: index of the turn, from 0.
        prefix_ids: token ids before the evidence.
        graph: the evidence graph. Its nodes are the tokens of the passages and, with
            ``evidence.question_nodes``, of the question.
        suffix_ids: token ids after the evidence, up to ``Answer:``.
        target_ids: the gold answer and the end token; empty if there is no gold answer.
        evidence: E_t as given to the model, best first.
        answer_sources: sources of the passages of E_t that contain gold answers; empty unless E_t
            contains all of them.
        dialogue_start: index in ``prefix_ids`` of the dialogue's first token, which is the first
            node of the question; None: the dialogue follows the evidence.
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

    @property
    def key(self) -> tuple[str, str]:
        """Id of the conversation and of the turn."""
        return self.conversation.id, self.conversation.turns[self.turn].id

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
    """Builds examples; caches the indexes of pools and the tokens of passages.

    Args:
        prompt: prompt assembly for the model's tokenizer.
        config: retrieval, memory and graph settings.
        embed: the sentence encoder, for ``memory: rerank``, for retrievers other than BM25 and for
            memory graphs.
        cut: edges to remove from every graph, or ``shuffle`` to rewire them, as a control.
        memory_graph: settings of the conversations' memory graphs; None: no memory graphs.
        mentions: whether to record which nodes mention which entity; needs question nodes.

    Attributes:
        counts: totals over the examples built, for the log.
    """

    prompt: Prompt
    config: EvidenceConfig
    embed: Embed | None = None
    cut: CutEdges = "nothing"
    memory_graph: MemoryGraphConfig | None = None
    mentions: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _indexes: dict[int, tuple[Any, Index]] = field(default_factory=dict)
    _tokens: TokenCache = field(default_factory=TokenCache)
    _corpus: Corpus | None = None

    @property
    def needs_embed(self) -> bool:
        """Whether building examples needs a sentence encoder."""
        graph = self.memory_graph
        is_used = self.config.memory == "rerank" or self.config.retriever not in ("bm25", "links")
        return is_used or (graph is not None and graph.vectors == "encoder")

    @property
    def num_cached(self) -> dict[str, int]:
        """Number of cached indexes of pools and of cached tokens of passages."""
        return {"indexes": len(self._indexes), "passage_tokens": self._tokens.num_tokens}

    def memory(self, conversation: Conversation) -> EvidenceMemory:
        """Make an empty evidence memory for a conversation, with a memory graph if it has one."""
        config, graph = self.config, None
        if self.memory_graph is not None:
            from turngraph.data.memory_graph.conversation import ConversationGraph  # few need it

            graph = ConversationGraph(self.memory_graph, self.embed)
        seed = f"0/{conversation.id}"
        return EvidenceMemory(config.memory, embed=self.embed, seed=seed, graph=graph)

    def conversation(
        self,
        conversation: Conversation,
        turns: Collection[int] | None = None,
        pool: tuple[Evidence, ...] | None = None,
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
        if memory.graph is not None:
            memory.graph.close()
        return examples

    def retrieve(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        pool: tuple[Evidence, ...] | None = None,
    ) -> tuple[Query, list[Retrieved]]:
        """Return Q_t, as one text or as turns with weights, and the best passages."""
        current = conversation.turns[turn]
        if pool is None:
            pool = join_pools(conversation.evidence, current.evidence)
        config, question = self.config, current.question
        q_t: Query
        if config.history_weight == 1:
            q_t = cut_query(query(interaction, question), config.max_query_words)
        else:
            q_t = weighted_query(interaction, question, config.history_weight)
        if (corpus := self.corpus) is None:
            return q_t, self._index(pool).rank(q_t, config.top_k, turn)
        found = corpus.rank(q_t, config.top_k, turn)
        if pool:
            of_pool = self._index(pool).rank(q_t, config.top_k, turn)
            found = fuse_retrieved([of_pool, found], config.top_k)
        return q_t, found

    @property
    def corpus(self) -> CorpusIndex | None:
        """The index of ``evidence.corpus``; None if there is none.

        Raises:
            UserError: the corpus cannot be opened, or its vectors are of another encoder.
        """
        config = self.config
        if config.corpus is None:
            return None
        if self._corpus is None:
            from turngraph.data.corpus.corpus import Corpus  # few need it

            self._corpus = Corpus(config.corpus)
        retriever = config.retriever
        assert retriever != "links", "the config is checked"
        assert retriever != "eigen", "the config is checked"
        return self._corpus.index(retriever, self.embed, config.embedder)

    def turn(
        self,
        conversation: Conversation,
        turn: int,
        interaction: Interaction,
        memory: EvidenceMemory,
        pool: tuple[Evidence, ...] | None = None,
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
        evidence = memory.merge(kept, q_t, lambda items: self._fits([*items, *recalled]))
        known = {item.evidence.text for item in evidence}
        evidence += [item for item in recalled if item.evidence.text not in known]
        evidence.sort(key=lambda item: item.evidence.id != COMPUTED_ID)
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
        return Example(
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
        found = memory.graph.recall(question, interaction, turn)
        recalled = [item for item in found if item.evidence.text not in best][:slots]
        return self._cut_to_budget(recalled, share=share if retrieved else 1.0)

    def encoded_question(self, question: str, interaction: Interaction) -> str:
        """Return the text whose tokens become question nodes; "" for none."""
        if self.prompt.question_first:
            return self.prompt.dialogue(interaction, question)
        if self.config.question_nodes == "query":
            return cut_query(query(interaction, question), self.config.max_query_words)
        return question if self.config.question_nodes == "question" else ""

    def graph(self, passages: Sequence[Evidence], question: str = "") -> ChainGraph:
        """Build the graph of passages.

        Args:
            passages: the evidence, best first.
            question: text whose tokens become question nodes; "" for none.
        """
        safe_passages, tokens = self.tokenise(passages)
        config, num_hidden = self.config, 0
        if question:
            plain = question if self.prompt.question_first else self.prompt.plain(question)
            own = Evidence("question", plain, "text")
            safe_passages.append(own)
            tokens.append(self.prompt.tokenise_question(own.text))
            num_hidden = len(tokens[-1].ids)
        spans = entity_spans(safe_passages)
        more = more_edges(safe_passages, tokens, spans, config.structure_edges, bool(question))
        if question:
            spans[-1] = []  # ``more`` has the question's edges
        kinds = config.chain, config.entity_edges
        graph = chain_graph(tokens, spans, *kinds, more_edges=more, num_hidden=num_hidden)
        if config.edges == "none":
            graph = cut_edges(graph, "all")
        elif "shuffle" in (self.cut, config.edges.removesuffix("d")):
            graph = shuffle_entity_edges(graph, node_starts(tokens))
        else:
            graph = cut_edges(graph, self.cut)
        if self.mentions:
            nodes = span_nodes(tokens, spans, node_starts(tokens))
            sizes = [len(passage.ids) for passage in tokens] + [0] * (not question)
            graph = replace(graph, mentions=find_mentions(passages, nodes, sizes))
        self.counts["entity edges"] += graph.num_entity_edges
        self.counts["nodes"] += len(graph.node_ids)
        self.counts["graphs"] += 1
        self.counts["passages truncated"] += sum(passage.num_cut > 0 for passage in tokens)
        self.counts["tokens truncated"] += sum(passage.num_cut for passage in tokens)
        return graph

    def _index(self, pool: tuple[Evidence, ...]) -> Index:
        """Return the pool's index, which is built once for each pool object."""
        known = self._indexes.get(id(pool))
        if known is None or known[0] is not pool:
            if len(self._indexes) >= MAX_INDEXES:
                self._indexes.pop(next(iter(self._indexes)), None)
            known = pool, self._new_index(pool)
            self._indexes[id(pool)] = known
        return known[1]

    def prepare(self, pool: tuple[Evidence, ...]) -> None:
        """Make the index of a pool that is going to be asked, in any thread."""
        self._index(pool)

    def drop_index(self, pool: tuple[Evidence, ...]) -> None:
        """Drop the index of a pool that is asked no more."""
        self._indexes.pop(id(pool), None)

    def _new_index(self, pool: tuple[Evidence, ...]) -> Index:
        retriever, ranker = self.config.retriever, self.config.ranker
        if retriever == "bm25":
            return EvidenceIndex(pool, ranker, self.config.stemmer)
        if retriever == "links":
            return LinkedIndex(pool, ranker, self.config.stemmer)
        assert self.embed is not None, f"evidence.retriever {retriever} needs a sentence encoder"
        if retriever == "dense":
            return DenseIndex(pool, self.embed)
        if retriever == "rrf":
            return FusedIndex(pool, self.embed, ranker, self.config.stemmer)
        from turngraph.data.eigen.eigen_index import EigenIndex  # few need it

        return EigenIndex(pool, self.embed)

    def tokenise(
        self, passages: Sequence[Evidence]
    ) -> tuple[list[Evidence], list[TokenisedPassage]]:
        """Break up prompt markers in passages, and tokenise up to ``max_nodes`` tokens each."""
        return self._tokens.passages(self.prompt, passages, self.config.max_nodes)

    def sizes(self, items: Sequence[Retrieved]) -> list[int]:
        """Count the tokens of passages; each takes one position in the prompt."""
        _, tokens = self.tokenise([item.evidence for item in items])
        return [len(passage.ids) for passage in tokens]

    def _fits(self, items: Sequence[Retrieved]) -> bool:
        limit = self.config.max_nodes
        return limit is None or sum(self.sizes(items)) <= limit

    def _cut_to_budget(
        self, retrieved: list[Retrieved], others: Sequence[Retrieved] = (), share: float = 1.0
    ) -> list[Retrieved]:
        """Drop the lowest passages until the rest and ``others`` fit into a share of the budget."""
        if self.config.max_nodes is None:
            return retrieved
        limit = self.config.max_nodes * share - sum(self.sizes(others))
        kept = sum(total <= limit for total in accumulate(self.sizes(retrieved)))
        self.counts["passages dropped"] += len(retrieved) - kept
        return retrieved[:kept]

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
