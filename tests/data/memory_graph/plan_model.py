"""Language model of plans by script, and the parts of its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turngraph.data.memory_graph.extract.model_extractor import Prompt, Reply
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.tests.data.memory_graph.hashing import Hashing

Key = tuple[str, str]
QUESTION = "Who leads the country where Anna was born?"
TEXTS = ("Anna was born in Norway.", "Olav leads Norway.", "Cem was born in Chile.")


def stage_of(prompt: Prompt) -> str:
    """The stage that a prompt's subject names."""
    return prompt.subject.removeprefix("stage ").partition(",")[0]


def inputs(prompt: Prompt) -> str:
    """All that a prompt says of the question at hand: what follows the instructions."""
    [_, _, values] = prompt.text.rpartition("Reply with one JSON object")
    return values.partition("\n")[2].strip()


def question_of(prompt: Prompt) -> str:
    return prompt.text.rpartition("Question: ")[2].strip()


class Script:
    """Language model that has a reply for each stage and inputs, and for no others.

    Args:
        replies: the value of each (stage, inputs); a prompt that is not there raises.
    """

    def __init__(self, replies: Mapping[Key, Any]) -> None:
        self.replies = replies
        self.waves: list[list[Key]] = []

    def __call__(self, prompts: Sequence[Prompt]) -> list[Reply]:
        wave = [(stage_of(prompt), inputs(prompt)) for prompt in prompts]
        self.waves.append(wave)
        return [Reply(self.replies[key], True) for key in wave]


class Double:
    """Language model that replies by stage: a value, or a function of the prompt.

    Args:
        stages: replies in place of those that find one step and no answer.
    """

    def __init__(self, **stages: Any) -> None:
        nothing = {"facts": [], "answer": ""}
        self.stages: dict[str, Any] = {
            "decompose": {"because": "", "independent": False, "questions": []},
            "plan": {"steps": []},
            "names": {"entities": []},
            "clue": {"question": ""},
            "summarise": nothing,
            "join": nothing,
            "enough": {"because": "", "enough": False},
            "revise": {"because": "", "revise": False, "next": []},
            "next": {"because": "", "enough": False, "revise": False, "next": []},
            "strict": {"answer": ""},
            "aggregate": {"answer": "", "from": []},
        } | stages
        self.prompts: list[Prompt] = []

    def __call__(self, prompts: Sequence[Prompt]) -> list[Reply]:
        self.prompts += prompts
        return [Reply(self._value(prompt), True) for prompt in prompts]

    def _value(self, prompt: Prompt) -> Any:
        found = self.stages[stage_of(prompt)]
        return found(prompt) if isinstance(found, Callable) else found

    def asked(self, stage: str) -> list[str]:
        """The questions of a stage's prompts, in order."""
        return [question_of(p) for p in self.prompts if stage_of(p) == stage]


def small_graph(*texts: str) -> MemoryGraph:
    """A graph in memory of ``TEXTS`` or others, each one episode."""
    graph = MemoryGraph.open(":memory:", Hashing())
    for text in texts or TEXTS:
        graph.remember(text)
    return graph
