"""Caches the tokens of passages."""

from __future__ import annotations

from collections.abc import Sequence

from turngraph.data.graph.chain_graph import TokenisedPassage
from turngraph.data.prompt import Prompt
from turngraph.data.types import Evidence

MAX_TOKENS = 2**17
"""Number of cached tokens, some 70 bytes each, above which the cache is emptied."""


class TokenCache:
    """Tokens of passages that have been tokenised before.

    Attributes:
        num_tokens: number of tokens of cached passages.
    """

    def __init__(self) -> None:
        self.num_tokens = 0
        self._passages: dict[str, tuple[str, TokenisedPassage]] = {}

    def passages(
        self, prompt: Prompt, passages: Sequence[Evidence], limit: int
    ) -> tuple[list[Evidence], list[TokenisedPassage]]:
        """Break up prompt markers in passages, and tokenise up to ``limit`` tokens each."""
        if self.num_tokens > MAX_TOKENS:
            self._passages, self.num_tokens = {}, 0
        cache = self._passages  # which another thread may replace
        new = list({p.text: None for p in passages if p.text not in cache})
        plain = [prompt.plain(text) for text in new]
        for text, safe, tokens in zip(new, plain, prompt.tokenise_passages(plain), strict=True):
            cache[text] = safe, (cut := _cut(tokens, limit))
            self.num_tokens += len(cut.ids)
        entries = [cache[passage.text] for passage in passages]
        safe_passages = [
            passage
            if safe == passage.text
            else Evidence(passage.id, safe, passage.source, passage.entities)
            for passage, (safe, _) in zip(passages, entries, strict=True)
        ]
        return safe_passages, [tokens for _, tokens in entries]


def _cut(tokens: TokenisedPassage, limit: int) -> TokenisedPassage:
    """Truncate a passage that alone exceeds the limit."""
    if len(tokens.ids) <= limit:
        return tokens
    return TokenisedPassage(tokens.ids[:limit], tokens.ends[:limit], len(tokens.ids) - limit)
