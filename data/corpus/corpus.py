"""A corpus of passages on disk, searched without reading it into memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, overload

import numpy as np

from turngraph.configs.user_error import UserError
from turngraph.data.corpus.bm25_files import FOLDER, open_bm25
from turngraph.data.corpus.files import array
from turngraph.data.corpus.segment import Segment
from turngraph.data.corpus.sign_codes import nearest_codes, sign_codes
from turngraph.data.corpus.version import read_version, rows_of
from turngraph.data.embedding import Embed
from turngraph.data.retrieval.bm25 import SCORE_DECIMALS, EvidenceIndex, best
from turngraph.data.retrieval.dense import fused_rows, query_vector
from turngraph.data.types import Evidence, Query, Retrieved

Retriever = Literal["bm25", "dense", "rrf"]
CANDIDATES = 1_000
"""Number of passages that are chosen by their codes, compared by their vectors, and fused by
RRF."""


class CorpusPassages(Sequence[Evidence]):
    """The passages of one version, each read from disk when it is asked for."""

    def __init__(self, segments: Sequence[Segment], segment: np.ndarray, row: np.ndarray) -> None:
        self._segments, self._segment, self._row = segments, segment, row

    def __len__(self) -> int:
        return len(self._row)

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Evidence]: ...
    def __getitem__(self, index: int | slice) -> Evidence | list[Evidence]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._segments[int(self._segment[index])].passage(int(self._row[index]))

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Return the sentence vectors of passages, float32 [rows, width]."""
        of, at = self._segment[rows], self._row[rows]
        width = self._segments[0].vectors.shape[1]
        vectors = np.empty((len(rows), width), np.float32)
        for number in np.unique(of).tolist():
            mine = of == number
            vectors[mine] = self._segments[number].vectors[at[mine]]
        return vectors


class Corpus:
    """One version of a corpus.

    Args:
        folder: folder that ``turngraph corpus build`` made.
        number: number of the version; None: the current one.
        hashes: check the hashes of all files, which reads them once.

    Raises:
        UserError: there is no such corpus or version, or a file of it is missing or was changed.
    """

    def __init__(self, folder: str | Path, number: int | None = None, hashes: bool = False) -> None:
        self.folder = Path(folder)
        self.version = read_version(self.folder, number, hashes)
        segments = [
            Segment(self.folder / "segments" / name, hashes) for name in self.version.segments
        ]
        self.passages = CorpusPassages(segments, *rows_of(self.version))

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def fingerprint(self) -> str:
        """Text that two corpora share only if they have the same sources, for caches."""
        sources = sorted((name, of["sha256"]) for name, of in self.version.sources.items())
        return repr((sources, self.version.embedder))

    @cached_property
    def bm25(self) -> EvidenceIndex:
        """BM25+ index of its passages, equal to that of a pool with the same passages."""
        return EvidenceIndex.of(self.passages, open_bm25(self.version.folder / FOLDER))

    @cached_property
    def codes(self) -> np.ndarray:
        """Signs of the passages' vectors, uint64 [passages, words]."""
        return array(self.version.folder, "codes")

    def index(
        self, retriever: Retriever, embed: Embed | None = None, embedder: str | None = None
    ) -> CorpusIndex:
        """Return an index of the corpus.

        Args:
            retriever: bm25, dense or rrf, as ``evidence.retriever``.
            embed: the sentence encoder that made the corpus's vectors; None for bm25.
            embedder: name of ``embed``, which must be that of the corpus's encoder; None: not
                checked.

        Raises:
            UserError: the retriever needs vectors, and the corpus has none, or has those of
                another encoder.
        """
        if retriever != "bm25" and self.version.embedder is None:
            hint = "turngraph corpus build --vectors makes them, and --retriever bm25 needs none"
            raise UserError(f"{self.folder}: no vectors, which {retriever} needs; {hint}")
        if retriever != "bm25" and embedder not in (None, self.version.embedder):
            made = f"has vectors by {self.version.embedder}, but evidence.embedder is {embedder}"
            raise UserError(f"{self.folder}: {made}")
        return CorpusIndex(self, retriever, embed)


class CorpusIndex:
    """Ranks the passages of a corpus by BM25+, by cosine, or by reciprocal-rank fusion of both.

    Args:
        corpus: the corpus.
        retriever: bm25, dense or rrf.
        embed: the sentence encoder; None for bm25.
    """

    def __init__(self, corpus: Corpus, retriever: Retriever, embed: Embed | None) -> None:
        self.corpus, self.retriever, self.embed = corpus, retriever, embed

    def rank(self, query: Query, top_k: int, turn: int = 0) -> list[Retrieved]:
        """Return the ``top_k`` best passages, best first, ties by source and position.

        Args:
            query: Q_t, or its turns with their weights.
            top_k: maximum number of passages; with vectors at most 1,000 are ranked by cosine.
            turn: index of the turn, recorded with every passage.
        """
        if self.retriever == "bm25":
            return self.corpus.bm25.rank(query, top_k, turn)
        rows, scores = self._dense(query, max(top_k, CANDIDATES))
        if self.retriever == "rrf":
            by_words = self.corpus.bm25.query_scores(query)
            first = best(by_words, max(top_k, CANDIDATES))
            rows, scores = fused_rows(by_words, first, rows, scores)
        chosen = best(scores, top_k)
        passages = self.corpus.passages
        return [Retrieved(passages[int(rows[i])], float(scores[i]), turn) for i in chosen]

    def _dense(self, query: Query, num: int) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates, ascending, and their cosines."""
        assert self.embed is not None, f"{self.retriever} needs a sentence encoder"
        vector = query_vector(self.embed, query)
        rows = nearest_codes(self.corpus.codes, sign_codes(vector[None])[0], num)
        similar = self.corpus.passages.vectors(rows) @ vector
        return rows, np.round(similar.astype(np.float64), SCORE_DECIMALS)
