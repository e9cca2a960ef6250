"""Finds the passages of a turn, E_t: in its pool, in a corpus, or in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turngraph.configs.schema import EvidenceConfig
from turngraph.data.embedding import Embed
from turngraph.data.retrieval.bm25 import EvidenceIndex, cut_query
from turngraph.data.retrieval.dense import DenseIndex, FusedIndex, Index
from turngraph.data.retrieval.links import LinkedIndex
from turngraph.data.retrieval.reciprocal_ranks import fuse_retrieved
from turngraph.data.types import Evidence, Interaction, Query, Retrieved, query, weighted_query

if TYPE_CHECKING:
    from turngraph.data.corpus.corpus import Corpus, CorpusIndex

MAX_INDEXES = 256
"""Indexes of pools that are cached, mostly of finished conversations; the oldest is dropped."""
Pool = tuple[Evidence, ...]


class TurnRetrieval:
    """Ranks passages for turns; caches the corpus and the indexes of pools.

    Every method takes ``config``, the retrieval's settings, and ``embed``, the sentence encoder of
    retrievers other than BM25 and links.
    """

    def __init__(self) -> None:
        self.indexes: dict[int, tuple[Pool, Index]] = {}
        self._corpus: Corpus | None = None

    def search(
        self, pool: Pool, q_t: Query, turn: int, config: EvidenceConfig, embed: Embed | None
    ) -> list[Retrieved]:
        """Return the ``top_k`` best passages of a turn's pool and the corpus, best first.

        Without a corpus, a pool of at most ``top_k`` passages of which none matches is returned as
        it is, with scores of 0.
        """
        if (corpus := self.corpus(config, embed)) is None:
            retrieved = self.index(pool, config, embed).rank(q_t, config.top_k, turn)
            if not retrieved and len(pool) <= config.top_k:
                return [Retrieved(passage, 0.0, turn) for passage in pool]
            return retrieved
        retrieved = corpus.rank(q_t, config.top_k, turn)
        if pool:
            of_pool = self.index(pool, config, embed).rank(q_t, config.top_k, turn)
            retrieved = fuse_retrieved([of_pool, retrieved], config.top_k)
        return retrieved

    def corpus(self, config: EvidenceConfig, embed: Embed | None) -> CorpusIndex | None:
        """Return the index of ``evidence.corpus``; None if there is none.

        Raises:
            UserError: the corpus cannot be opened, or its vectors are of another encoder.
        """
        if config.corpus is None:
            return None
        if self._corpus is None:
            from turngraph.data.corpus.corpus import Corpus  # seldom needed

            self._corpus = Corpus(config.corpus)
        retriever = config.retriever
        assert retriever != "links", "the config is checked"
        assert retriever != "eigen", "the config is checked"
        return self._corpus.index(retriever, embed, config.embedder)

    def index(self, pool: Pool, config: EvidenceConfig, embed: Embed | None) -> Index:
        """Return the pool's index, which is built once for each pool object, in any thread."""
        entry = self.indexes.get(id(pool))
        if entry is None or entry[0] is not pool:
            if len(self.indexes) >= MAX_INDEXES:
                self.indexes.pop(next(iter(self.indexes)), None)
            entry = pool, _new_index(pool, config, embed)
            self.indexes[id(pool)] = entry
        return entry[1]

    def drop_index(self, pool: Pool) -> None:
        """Drop the index of a pool that is no longer used."""
        self.indexes.pop(id(pool), None)


def turn_query(interaction: Interaction, question: str, config: EvidenceConfig) -> Query:
    """Return Q_t: as one text, or as turns with weights."""
    if config.history_weight == 1:
        return cut_query(query(interaction, question))
    return weighted_query(interaction, question, config.history_weight)


def needs_embed(config: EvidenceConfig) -> bool:
    """Return whether retrieval or the evidence memory needs a sentence encoder."""
    return config.memory == "rerank" or config.retriever not in ("bm25", "links")


def _new_index(pool: Pool, config: EvidenceConfig, embed: Embed | None) -> Index:
    retriever, ranker = config.retriever, config.ranker
    if retriever == "bm25":
        return EvidenceIndex(pool, ranker, config.stemmer)
    if retriever == "links":
        return LinkedIndex(pool, ranker, config.stemmer)
    assert embed is not None, f"evidence.retriever {retriever} needs a sentence encoder"
    if retriever == "dense":
        return DenseIndex(pool, embed)
    if retriever == "rrf":
        return FusedIndex(pool, embed, ranker, config.stemmer)
    from turngraph.data.eigen.eigen_index import EigenIndex  # seldom needed

    return EigenIndex(pool, embed)
