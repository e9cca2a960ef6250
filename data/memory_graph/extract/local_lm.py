"""Extractor that asks a local causal LM with constrained decoding, so that every reply parses."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.extract.model_extractor import ModelExtractor, Prompt, Reply
from turngraph.data.memory_graph.extract.replies import Schema, misfit

Generate = Callable[[Sequence[str], Schema], Sequence[tuple[str, bool]]]
"""Returns, for each user message, JSON of a schema and whether the LM ended the reply by itself, as
``model.constrained.ConstrainedLM.generate`` does."""


class LmExtractor(ModelExtractor):
    """Extractor that asks a local LM.

    Args:
        generate: the LM.
        name: name that is recorded with every episode.
        relations, classes: as in ``ModelExtractor``.
    """

    def __init__(
        self,
        generate: Generate,
        name: str = "lm",
        relations: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> None:
        super().__init__(name, self._generate, relations, classes)
        self.generate = generate

    def _generate(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Generate replies, with one batch of prompts for each schema.

        Raises:
            UserError: a reply does not fit its schema, as the decoding is not constrained.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, prompt in enumerate(prompts):
            groups[json.dumps(prompt.schema)].append(i)
        replies: dict[int, Reply] = {}
        for group in groups.values():
            texts = self.generate([prompts[i].text for i in group], prompts[group[0]].schema)
            for i, (text, is_complete) in zip(group, texts, strict=True):
                replies[i] = Reply(_parsed(text, prompts[i]), is_complete)
        return [replies[i] for i in range(len(prompts))]


def _parsed(text: str, prompt: Prompt) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if value is None or misfit(value, prompt.schema) is not None:
        hint = "decoding must obey the schema"
        raise UserError(f"{prompt.subject}: the LM's reply breaks the prompt's schema; {hint}")
    return value
