"""Extraction by a local causal LM whose decoding is constrained, so that every reply parses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from turngraph.data.memory_graph.extract.model_extractor import ModelExtractor, Prompt, Reply
from turngraph.data.memory_graph.extract.replies import Schema, fits

Generate = Callable[[Sequence[str], Schema], Sequence[tuple[str, bool]]]
"""JSON of a schema for each user message, and whether the LM ended it by itself;
``model.constrained.ConstrainedLM.generate``."""


class LmExtractor(ModelExtractor):
    """Extraction by a local LM.

    Args:
        generate: the LM.
        name: recorded with every episode.
    """

    def __init__(self, generate: Generate, name: str = "lm") -> None:
        super().__init__(name, self._generate)
        self.generate = generate

    def _generate(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Replies, the prompts of each schema together.

        Raises:
            ValueError: a reply is not of its schema: the decoding is not constrained.
        """
        schemas = {json.dumps(prompt.schema): prompt.schema for prompt in prompts}
        groups: dict[str, list[int]] = {key: [] for key in schemas}
        for number, prompt in enumerate(prompts):
            groups[json.dumps(prompt.schema)].append(number)
        replies: dict[int, Reply] = {}
        for key, numbers in groups.items():
            texts = self.generate([prompts[n].text for n in numbers], schemas[key])
            for number, (text, whole) in zip(numbers, texts, strict=True):
                replies[number] = Reply(_parsed(text, prompts[number]), whole)
        return [replies[number] for number in range(len(prompts))]


def _parsed(text: str, prompt: Prompt) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if value is None or not fits(value, prompt.schema):
        raise ValueError(f"{prompt.place}: the LM's reply breaks its schema: is it constrained?")
    return value
