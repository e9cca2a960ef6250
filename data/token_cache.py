"""Caches the tokens of passages and of entities' labels."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.graph.chain_graph import TokenisedPassage
from turngraph.data.prompt import Prompt
from turngraph.data.types import Evidence

MAX_TOKENS = 2**22
"""Tokens of passages that are cached, some 70 bytes each; then the cache is emptied."""
MAX_LABELS = 2**18
"""Labels that are cached, some 300 bytes each; then the cache is emptied."""
MAX_LABEL_TOKENS = 32
"""Tokens of an entity's label as an answer, its end token included; longer ones are cut."""


class TokenCache:
    """Tokens of passages and labels that have been tokenised before.

    Attributes:
        num_tokens: number of tokens of cached passages.
    """

    def __init__(self) -> None:
        self.num_tokens = 0
        self._passages: dict[str, tuple[str, TokenisedPassage]] = {}
        self._labels: dict[str, list[int]] = {}

    def passages(
        self, prompt: Prompt, passages: Sequence[Evidence], limit: int | None
    ) -> tuple[list[Evidence], list[TokenisedPassage]]:
        """Break up prompt markers in passages, and tokenise up to ``limit`` tokens each."""
        if self.num_tokens > MAX_TOKENS:
            self._passages, self.num_tokens = {}, 0
        cache = self._passages  # which another thread may replace
        new = list({p.text: None for p in passages if p.text not in cache})
        plain = [prompt.plain(text) for text in new]
        for text, safe, tokens in zip(new, plain, prompt.tokenise_passages(plain), strict=True):
            cache[text] = safe, (kept := _cut(tokens, limit))
            self.num_tokens += len(kept.ids)
        known = [cache[passage.text] for passage in passages]
        safe_passages = [
            passage
            if safe == passage.text
            else Evidence(passage.id, safe, passage.source, passage.entities)
            for passage, (safe, _) in zip(passages, known, strict=True)
        ]
        return safe_passages, [tokens for _, tokens in known]

    def labels(self, prompt: Prompt, labels: Sequence[str]) -> list[list[int]]:
        """Return the token ids of labels as answers, up to ``MAX_LABEL_TOKENS`` each."""
        if len(self._labels) > MAX_LABELS:
            self._labels = {}
        cache = self._labels  # which another thread may replace
        for label in labels:
            if label not in cache:
                cache[label] = prompt.target_ids(label)[:MAX_LABEL_TOKENS]
        return [cache[label] for label in labels]


def _cut(tokens: TokenisedPassage, limit: int | None) -> TokenisedPassage:
    """Truncate a passage that alone exceeds the limit."""
    if limit is None or len(tokens.ids) <= limit:
        return tokens
    return TokenisedPassage(tokens.ids[:limit], tokens.ends[:limit], len(tokens.ids) - limit)
