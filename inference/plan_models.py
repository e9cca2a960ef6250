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
from turngraph.inference.model_options import LANGUAGE_MODEL, model_and_rest, server_settings

if TYPE_CHECKING:
    from turngraph.data.memory_graph.graph import MemoryGraph
    from turngraph.data.memory_graph.ontology.model_plan import ModelPlans

MAX_NEW_TOKENS = 512
"""Longest reply of a local model, in tokens; the longest plan has fewer."""
MAX_PLAN_TOKENS = 320
"""Longest plan of a computed answer, in tokens."""
MAX_TOKENS = 1024
"""Longest reply of a server, in tokens, unless another limit is given."""


def planner_maker(
    plan: str, limits: PlanSettings, options: Mapping[str, str | float | None]
) -> Callable[[MemoryGraph], Planner]:
    """Return a function that makes a planner for an open graph; the graph caches its replies.

    Args:
        plan: ``lm`` or ``endpoint``.
        limits: settings of the plan.
        options: ``model``, ``device`` and those of ``SERVER_OPTIONS``; None: not given.

    Raises:
        UserError: an option is missing or wrong.
    """
    model, server = model_and_rest(options)
    if plan == "lm":
        device = str(options.get("device") or "cpu")
        return lambda graph: load_planner(model or LANGUAGE_MODEL, device, limits, graph.replies)
    settings = server_settings(f"--plan {plan}", model, server, {"max_tokens": MAX_TOKENS})
    return lambda graph: server_planner(settings, limits, graph.replies)


def plans_maker(
    planner: str, options: Mapping[str, str | float | None]
) -> Callable[[MemoryGraph], ModelPlans]:
    """Return a function that makes the planner of computed answers for an open graph.

    Args:
        planner: ``lm`` or ``endpoint``.
        options: as in ``planner_maker``.

    Raises:
        UserError: an option is missing or wrong.
    """
    from turngraph.data.memory_graph.ontology.model_plan import ModelPlans

    model, server = model_and_rest(options)
    if planner == "lm":
        device = str(options.get("device") or "cpu")
        return lambda graph: load_plans(model or LANGUAGE_MODEL, device, graph.replies)
    settings = server_settings("--compute_by endpoint", model, server, {"max_tokens": MAX_TOKENS})
    return lambda graph: ModelPlans(server_replies(settings, graph.replies))


def load_plans(model: str, device: str, cache: ReplyCache | None) -> ModelPlans:
    """Load a local LM that plans computed answers; imports torch.

    Args:
        model, device, cache: as in ``load_planner``.

    Raises:
        UserError: the model cannot be loaded.
    """
    from turngraph.data.memory_graph.ontology.model_plan import ModelPlans
    from turngraph.model.constrained import ConstrainedLM

    lm = ConstrainedLM(model, device=device, max_new_tokens=MAX_PLAN_TOKENS)
    return ModelPlans(local_replies(lm.generate, model, MAX_PLAN_TOKENS, cache))


def load_planner(
    model: str, device: str, limits: PlanSettings, cache: ReplyCache | None
) -> LocalPlanner:
    """Load a local LM that plans; imports torch.

    Args:
        model: a folder, a packaged model or a hub name.
        device: device to run on.
        limits: settings of the plan.
        cache: keeps its replies.

    Raises:
        UserError: the model cannot be loaded.
    """
    from turngraph.model.constrained import ConstrainedLM

    lm = ConstrainedLM(model, device=device, max_new_tokens=MAX_NEW_TOKENS)
    return local_planner(lm.generate, model, limits, cache)


def local_planner(
    generate: Generate, model: str, limits: PlanSettings, cache: ReplyCache | None
) -> LocalPlanner:
    """Return a planner with a local LM, whose replies always fit their schema.

    Args:
        generate: the LM.
        model, limits, cache: as in ``load_planner``.
    """
    return LocalPlanner(local_replies(generate, model, MAX_NEW_TOKENS, cache, MAX_CALLS), limits)


def local_replies(
    generate: Generate,
    model: str,
    max_tokens: int,
    cache: ReplyCache | None,
    max_calls: int | None = None,
) -> ModelReplies:
    """Return the replies of a local LM, which always fit their schema.

    Args:
        generate, model, cache: as in ``local_planner``.
        max_tokens: most tokens of a reply.
        max_calls: most calls for a question; None: any number.
    """
    decoding = f"greedy, at most {max_tokens} tokens"
    ask = LmExtractor(generate).ask
    return ModelReplies(ask, model, decoding, cache, max_calls)


def server_planner(
    settings: EndpointSettings, limits: PlanSettings, cache: ReplyCache | None
) -> ModelPlanner:
    """Return a planner that asks a server of the OpenAI chat API at every stage.

    Args:
        settings: settings of the server and its requests; the client retries by itself.
        limits: settings of the plan.
        cache: keeps its replies.
    """
    return ModelPlanner(server_replies(settings, cache), limits, name="endpoint")


def server_replies(settings: EndpointSettings, cache: ReplyCache | None) -> ModelReplies:
    """Return the replies of a server; see ``server_planner``."""
    client = ChatClient(settings)
    sent = (settings.temperature, settings.max_tokens, settings.response_format)
    return ModelReplies(
        client.ask,
        f"{settings.shown} {settings.model}",
        "temperature {}, at most {} tokens, format {}".format(*sent),
        cache,
        count=lambda: client.budget.requests,
    )
