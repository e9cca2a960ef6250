"""Options of language models of the memory graph's commands, local and on a server."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turngraph.configs.shipped import READER
from turngraph.configs.user_error import UserError

if TYPE_CHECKING:  # it needs an extra, and takes long to import
    from turngraph.data.embedding import Embed
    from turngraph.data.memory_graph.extract.endpoint import EndpointSettings
    from turngraph.data.memory_graph.memory_types import Extractor

PLANNERS = ("rules", "lm", "endpoint")
EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
LANGUAGE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SERVER_OPTIONS: dict[str, tuple[type, str]] = {
    "base_url": (str, "URL up to the version: http://localhost:8000/v1"),
    "api_key_variable": (str, "environment variable that holds the key"),
    "max_tokens": (int, "maximum tokens of a reply"),
    "token_limit": (str, "request field for it: max_tokens or max_completion_tokens"),
    "response_format": (str, "json_schema, json_object or none"),
    "concurrency": (int, "maximum requests at the same time"),
    "retries": (int, "retries of a failed request"),
    "timeout": (float, "seconds for one request"),
    "budget": (int, "limit on the tokens of prompts and replies together"),
    "prompt_price": (float, "price of a million tokens"),
    "completion_price": (float, "price of a million tokens"),
}
"""Options of a server: fields of ``endpoint.EndpointSettings``."""
USED = {
    "rules": (),
    "lm": ("model", "device"),
    "endpoint": ("model", *SERVER_OPTIONS),
}
"""Planner -> the options of models that it uses."""


def add_plan_options(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    """Add the options of questions that are asked by a plan of steps.

    Args:
        parser: parser of the command.
        positive: type of a whole number from 1.
    """
    parser.add_argument(
        "--plan",
        choices=PLANNERS,
        help="ask by a plan of steps, each of which uses earlier ones; "
        "the steps are found by rules, by a local model, or by a model on a server",
    )
    parser.add_argument("--steps", type=positive, help="with --plan: most steps (4)")
    parser.add_argument("--clues", type=positive, help="with --plan: most queries of a step (4)")
    parser.add_argument(
        "--over",
        choices=("both", "facts", "episodes"),
        help="what is ranked: facts, episodes (whole texts) by PageRank, or both, fused; default:"
        " both, with --plan, --mixture or --forbidden facts",
    )
    readers = parser.add_mutually_exclusive_group()
    readers.add_argument(
        "--reader",
        nargs="?",
        const=READER,
        metavar="CHECKPOINT",
        help="a checkpoint that answers the question from the facts that were found, with --plan"
        " also the steps; default: the reader that comes with the package, with --plan and"
        " --no_embed none",
    )
    readers.add_argument(
        "--no_reader", action="store_true", help="no reader: facts alone, in a shorter time"
    )
    parser.add_argument(
        "--abstain_below",
        type=float,
        help="confidence below which the reader's answer is withheld",
    )


def check_model_options(
    plan: str | None, options: Mapping[str, str | float | None], compute_by: str | None
) -> None:
    """Check that every option of a model that is given goes with the planner.

    Args:
        plan: planner of steps; None: there are none.
        options: options of models; the value of one that was not given is None.
        compute_by: ``lm`` or ``endpoint``, which plans computed answers; None: nothing does.

    Raises:
        UserError: one does not; the message names it.
    """
    for name, value in options.items():
        used = {*USED.get(plan or "", ()), *USED.get(compute_by or "", ())}
        if value is not None and name not in used:
            plans = " or ".join(plan for plan, used in USED.items() if name in used)
            raise UserError(f"--{name} needs --plan {plans}, or --compute_by {plans}")


def model_and_rest(
    options: Mapping[str, str | float | None],
) -> tuple[str | None, dict[str, str | float | None]]:
    """Return the model's name among options, if it is given, and those of a server."""
    model = options.get("model")
    rest = {name: value for name, value in options.items() if name in SERVER_OPTIONS}
    return None if model is None else str(model), rest


def server_settings(
    option: str,
    model: str | None,
    options: Mapping[str, str | float | None],
    defaults: Mapping[str, Any] | None = None,
) -> EndpointSettings:
    """Return the settings of a server from the options of a command.

    Args:
        option: the option that needs them, for errors.
        model: the model's name on the server.
        options: the options ``SERVER_OPTIONS``; the value of one that was not given is None.
        defaults: settings in place of those that are not given.

    Raises:
        UserError: an option is missing or wrong.
    """
    from turngraph.data.memory_graph.extract.endpoint import EndpointSettings

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in ("base_url", "model"):
        if not (given | {"model": model}).get(name):
            raise UserError(f"{option} needs --{name}")
    return EndpointSettings(model=model or "", **{**(defaults or {}), **given})


def local_extractor(
    name: str, device: str, relations: Sequence[str], classes: Sequence[str]
) -> Extractor:
    """Load a local LM that extracts; imports torch.

    Args:
        name: name of the LM.
        device: device on which it runs.
        relations, classes: as in ``ModelExtractor``.
    """
    from turngraph.data.memory_graph.extract.local_lm import LmExtractor
    from turngraph.model.constrained import ConstrainedLM

    lm = ConstrainedLM(name, device=device)
    return LmExtractor(lm.generate, f"lm:{name}", relations, classes)


def server_extractor(
    model: str | None,
    options: Mapping[str, str | float | None],
    relations: Sequence[str],
    classes: Sequence[str],
) -> Extractor:
    """Return an extractor that asks a server of the OpenAI chat API.

    Args:
        model: the model's name on the server.
        options: the options ``SERVER_OPTIONS``; the value of one that was not given is None.
        relations, classes: as in ``ModelExtractor``.

    Raises:
        UserError: an option is missing or wrong.
    """
    from turngraph.data.memory_graph.extract.endpoint import EndpointExtractor

    settings = server_settings("--extractor endpoint", model, options)
    return EndpointExtractor(settings, relations=relations, classes=classes)


def make_embed(embedder: str | None, trusted: Collection[str] = ()) -> Embed:
    """Load a sentence encoder for the CPU; None: compare words, without a model.

    Torch is not imported where few texts are new and the encoder is one that NumPy computes.

    Args:
        embedder: name of the encoder.
        trusted: names of models whose own Python code may run.
    """
    if embedder is None:
        from turngraph.data.memory_graph.recall.word_vectors import word_vectors

        return word_vectors
    from turngraph.configs.models import sentence_encoder
    from turngraph.data.bert_encoder import light_encoder
    from turngraph.data.embedding import few_or_many

    encoder = sentence_encoder(embedder, trusted=trusted)
    light = light_encoder(embedder)
    return encoder if light is None else few_or_many(light, encoder)
