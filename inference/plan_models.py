"""Planners with a language model for the command line: a local model, or a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from turngraph.data.memory_graph.extract.endpoint import ChatClient, EndpointSettings
from turngraph.data.memory_graph.extract.local_lm import Generate, LmExtractor
from turngraph.data.memory_graph.plan.local_planner import MAX_CALLS, LocalPlanner
from turngraph.data.memory_graph.plan.model_planner import ModelPlanner
from turngraph.data.memory_graph.plan.model_replies import ModelReplies, ReplyCache
from turngraph.data.memory_graph.plan.steps import Planner, PlanSettings
from turngraph.inference.model_options import LANGUAGE_MODEL, server_settings

if TYPE_CHECKING:
    from turngraph.data.memory_graph.graph import MemoryGraph

MAX_NEW_TOKENS = 512
"""Longest reply of a local model, in tokens; the longest plan has fewer."""
MAX_TOKENS = 1024
"""Longest reply of a server, in tokens, unless another limit is given."""


def planner_maker(
    plan: str, limits: PlanSettings, options: Mapping[str, str | float | None]
) -> Callable[[MemoryGraph], Planner]:
    """Return a function that makes a planner for an open graph, which keeps its replies.

    Args:
        plan: ``lm`` or ``endpoint``.
        limits: settings of the plan.
        options: ``model``, ``device`` and those of ``SERVER_OPTIONS``; None: not given.

    Raises:
        ValueError: an option is missing or wrong.
    """
    rest = dict(options)
    model, device = rest.pop("model"), rest.pop("device")
    name = None if model is None else str(model)
    if plan == "lm":
        return lambda graph: load_planner(
            name or LANGUAGE_MODEL, str(device or "cpu"), limits, graph.replies
        )
    defaults = {"max_tokens": MAX_TOKENS}
    settings = server_settings(f"--plan {plan}", name, rest, defaults)
    return lambda graph: server_planner(settings, limits, graph.replies)


def load_planner(
    model: str, device: str, limits: PlanSettings, cache: ReplyCache | None = None
) -> LocalPlanner:
    """Load a local LM that plans; imports torch.

    Args:
        model: a folder, a packaged model or a hub name.
        device: device to run on.
        limits: settings of the plan.
        cache: keeps its replies.

    Raises:
        ValueError: the model cannot be loaded.
    """
    from turngraph.model.constrained import ConstrainedLM

    lm = ConstrainedLM(model, device=device, max_new_tokens=MAX_NEW_TOKENS)
    return local_planner(lm.generate, model, limits, cache)


def local_planner(
    generate: Generate, model: str, limits: PlanSettings, cache: ReplyCache | None = None
) -> LocalPlanner:
    """Return a planner with a local LM, whose replies all have their schema.

    Args:
        generate: the LM.
        model, limits, cache: as in ``load_planner``.
    """
    decoding = f"greedy, at most {MAX_NEW_TOKENS} tokens"
    ask = LmExtractor(generate).ask
    replies = ModelReplies(ask, model, decoding, cache, retries=0, max_calls=MAX_CALLS)
    return LocalPlanner(replies, limits)


def server_planner(
    settings: EndpointSettings, limits: PlanSettings, cache: ReplyCache | None = None
) -> ModelPlanner:
    """Return a planner that asks a server of the OpenAI chat API at every stage.

    Args:
        settings: of the server and its requests; it retries by itself.
        limits: settings of the plan.
        cache: keeps its replies.
    """
    client = ChatClient(settings)
    sent = (settings.temperature, settings.max_tokens, settings.response_format)
    replies = ModelReplies(
        client.ask,
        f"{settings.shown} {settings.model}",
        "temperature {}, at most {} tokens, format {}".format(*sent),
        cache,
        retries=0,
        count=lambda: client.budget.requests,
    )
    return ModelPlanner(replies, limits, name="endpoint")
