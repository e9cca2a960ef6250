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
    "model.scorer.heads": 4,
    "model.scorer.loss_weight": 1.0,
}
"""Fields that became constants, with their values."""
OF_GRAPH = ("evidence.chain", "evidence.question_nodes", "evidence.structure_edges")
"""Fields that ``evidence.graph`` replaced."""
GRAPHS = {("forward", "none", "none"): "paper", ("both", "query", "table"): "reader"}
"""Values of ``OF_GRAPH`` -> the value of ``evidence.graph`` that says the same."""
OF_GATE = ("model.encoder.residual", "model.encoder.residual_gate_init")
"""Fields that ``model.encoder.residual_gate`` replaced."""
SUCCESSORS = {
    **dict.fromkeys(OF_GRAPH, "evidence.graph"),
    **dict.fromkeys(OF_GATE, "model.encoder.residual_gate"),
    "training.max_minutes": "the option --max_minutes",
}
"""What replaced a former field, for errors."""
FORMER = {*CONSTANT, *OF_GRAPH, *OF_GATE, "training.log_every", "training.max_minutes"}
"""All fields that only earlier versions have; of a run's log and time a checkpoint is free."""


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
    if graph and graph not in [*GRAPHS]:  # a damaged value may have no hash
        known = " or ".join(map(str, GRAPHS))
        raise UserError(f"{source}, fields {', '.join(OF_GRAPH)}: {graph} given, must be {known}")
    present: dict[str, Any] = {"evidence.graph": GRAPHS[graph]} if graph else {}
    if former.keys() & set(OF_GATE):
        kind, initial = (former.get(name) for name in OF_GATE)
        present["model.encoder.residual_gate"] = None if kind == "none" else initial
    return present
