"""Opens the memory graph of a chat, with the settings of its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.models import sentence_encoder
from turngraph.data.embedding import cached
from turngraph.data.examples import ExampleBuilder
from turngraph.inference.model_options import LANGUAGE_MODEL
from turngraph.inference.options import MemoryOptions

if TYPE_CHECKING:
    from turngraph.data.memory_graph.conversation import ChatGraph


def open_memory(builder: ExampleBuilder, options: MemoryOptions, device: str) -> ChatGraph:
    """Open a person's memory graph, with the settings that the checkpoint was trained with, if any.

    Raises:
        UserError: it cannot be opened, the LM that plans cannot be loaded, or the extra ``memory``
            is not installed.
    """
    from turngraph.data.memory_graph.conversation import ChatGraph  # needs an extra

    config = builder.memory_graph or MemoryGraphConfig()
    plan, compute = options.plan, options.compute
    asked = "rules" if plan == "lm" else plan  # a plan by an LM is set up like one by rules
    computed = "rules" if compute == "lm" else compute  # an LM is asked only after the rules
    config = replace(config, plan=asked or config.plan, compute=computed or config.compute)
    embed = builder.embed
    if embed is None and config.vectors == "encoder":
        embed = cached(sentence_encoder(builder.config.embedder, device))
    graph = ChatGraph(options.path, config, embed, options.read_only)
    model = options.plan_model or LANGUAGE_MODEL
    if compute == "lm":
        from turngraph.inference.plan_models import load_plans

        graph.plans = load_plans(model, device, graph.graph.replies)
    if plan == "lm":
        from turngraph.inference.plan_models import load_planner

        graph.planner = load_planner(model, device, graph.plan_settings, graph.graph.replies)
    return graph
