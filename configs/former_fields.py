"""Fields of earlier versions, which the configs of saved checkpoints have."""

from __future__ import annotations

from typing import Any

from turngraph.configs.user_error import UserError

CONSTANT: dict[str, Any] = {
    "data.table_questions": 0,
    "data.train_repeats": 1,
    "evidence.entity_edges": "star",
    "evidence.max_query_words": 128,
    "model.encoder.edge_types": False,
    "model.encoder.node_embeddings": "frozen",
}
"""Fields that became constants, with their values."""
OF_GRAPH = ("evidence.chain", "evidence.question_nodes", "evidence.structure_edges")
"""Fields that ``evidence.graph`` replaced."""
GRAPHS = {("forward", "none", "none"): "paper", ("both", "query", "table"): "reader"}
"""Values of ``OF_GRAPH`` -> the value of ``evidence.graph`` that says the same."""
FORMER = {*CONSTANT, *OF_GRAPH}
"""All fields that only earlier versions have."""


def present_fields(former: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the present fields that say the same as former ones.

    Args:
        former: the former fields of a config, by name.
        source: the config, for errors.

    Raises:
        UserError: a former field has a value that this version does not have.
    """
    for name, value in former.items():
        if value != (only := CONSTANT.get(name, value)):
            raise UserError(f"{source}, field {name}: {value!r} given, must be {only!r}")
    graph = tuple(former[name] for name in OF_GRAPH if name in former)
    if graph and graph not in GRAPHS:
        known = " or ".join(map(str, GRAPHS))
        raise UserError(f"{source}, fields {', '.join(OF_GRAPH)}: {graph} given, must be {known}")
    return {"evidence.graph": GRAPHS[graph]} if graph else {}
