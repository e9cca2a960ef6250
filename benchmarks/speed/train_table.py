"""Formats the results of ``train_speed.py`` as JSON and as Markdown tables."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]
SYSTEMS = {"graph": "ours, graph", "text": "ours, text", "trl": "TRL, text", "pyg": "GRetriever"}
RATIOS = (("graph", "pyg"), ("text", "pyg"), ("text", "trl"), ("graph", "trl"), ("graph", "text"))
RATES = ("examples_per_second", "tokens_per_second")


class Setting(NamedTuple):
    """Batching of the questions: the batch size, and whether lengths in a batch are similar."""

    batch_size: int
    grouped: bool


@dataclass
class Cell:
    """Measurements of one system in one setting.

    Args:
        seconds: seconds of each round.
        losses: mean loss of each round.
        executed: the LM's operations per second in each round, with padding.
        useful: the same without padding.
        num_examples: examples per round.
        num_tokens: tokens per round, without padding.
        peak_bytes: peak while training on the largest batch, with weights and Adam's state.
        error: why the measurement stopped.
    """

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    executed: list[float] = field(default_factory=list)
    useful: list[float] = field(default_factory=list)
    num_examples: int = 0
    num_tokens: int = 0
    peak_bytes: int | None = None
    error: str | None = None


Cells = dict[tuple[str, Setting], Cell]


def best(cells: Cells, name: str) -> Setting | None:
    """Return a system's fastest batch size with similar lengths; None before its first round."""
    known = {
        setting: statistics.median(cell.seconds)
        for (system, setting), cell in cells.items()
        if system == name and setting.grouped and cell.seconds
    }
    return min(known, key=lambda setting: known[setting]) if known else None


def report(cells: Cells, facts: Json) -> Json:
    """Return all results as JSON: rows, and ratios at the best batch and in random order."""
    ceiling = facts.get("ceiling")
    rows = [row(name, setting, cell, ceiling) for (name, setting), cell in cells.items()]
    for line in rows:
        setting = Setting(line["batch_size"], line["grouped"])
        line["best"] = setting == best(cells, line["system"])
    return facts | {
        "rows": rows,
        "ratios": {
            "best": ratios([line for line in rows if line["best"]]),
            "random_order": ratios([line for line in rows if not line["grouped"]]),
        },
    }


def row(name: str, setting: Setting, cell: Cell, ceiling: float | None) -> Json:
    """Return one system's results in one setting; rates are None without a finished round."""
    seconds = statistics.median(cell.seconds) if cell.seconds else None
    line: Json = {"system": name, "batch_size": setting.batch_size, "grouped": setting.grouped}
    line["examples_per_second"] = seconds and cell.num_examples / seconds
    line["tokens_per_second"] = seconds and cell.num_tokens / seconds
    for kind, rates in (("executed", cell.executed), ("useful", cell.useful)):
        line[f"{kind}_share"] = statistics.median(rates) / ceiling if ceiling and rates else None
    measured = ("num_tokens", "peak_bytes", "seconds", "losses", "error")
    return line | {name: getattr(cell, name) for name in measured}


def ratios(rows: list[Json]) -> Json:
    """Return the ratios of our systems to their peers: "graph / trl" -> ratio of each rate."""
    known = {line["system"]: line for line in rows if line["examples_per_second"]}
    return {
        f"{ours} / {peer}": {rate: known[ours][rate] / known[peer][rate] for rate in RATES}
        for ours, peer in RATIOS
        if ours in known and peer in known
    }


def markdown(result: Json) -> str:
    """Return the Markdown tables: best batch and random order, ratios, other batch sizes."""
    rows = result["rows"]
    shown = [line for line in rows if line["best"]] + [line for line in rows if not line["grouped"]]
    parts = [introduction(result), table(shown, result), ratio_table(result["ratios"])]
    if result["encoder"]:
        parts.append(encoder_line(result["encoder"]))
    rest = [line for line in rows if line["grouped"] and not line["best"]]
    if rest:
        parts.append("The other batch sizes:\n\n" + table(rest, result))
    return "\n\n".join(parts)


def introduction(result: Json) -> str:
    """Return a paragraph on the measurement and the machine."""
    turns = (
        "systems in turn"
        if result["interleaved"]
        else "one system after the other, as the device holds only one at a time"
    )
    lines = [
        f"{result['model']}, {result['dtype']}, {result['attention']}; {result['device']}, "
        f"{result['num_threads']} threads; commit {result['commit']}, seed {result['seed']}. "
        f"{result['num_questions']} questions a round, {result['tokens_per_example']:.0f} tokens "
        f"each, LoRA of rank 8 on q_proj and v_proj; medians of {result['rounds']} rounds, "
        f"{turns}.",
        f"`{result['command']}`",
    ]
    if result["ceiling"]:
        lines.append(
            f"A bf16 matrix product of 8,192 x 8,192 reaches {result['ceiling'] / 1e12:.0f} "
            "TFLOP/s here; the LM's share of it counts the operations that were executed, and in "
            "brackets those without padding and masked-out attention."
        )
    if not result["complete"]:
        lines.append("Time ran out (--max_minutes): rows show the rounds finished until then.")
    return "\n\n".join(lines)


def table(rows: list[Json], result: Json) -> str:
    """Return rows of the report as a Markdown table."""
    names = ["system", "batch", "examples/s", "tokens/s", "peak memory, GB"]
    shares = bool(result["ceiling"])
    names += ["LM's share of the ceiling"] * shares
    lines = [names, [":--", *["--:"] * (len(names) - 1)]]
    for line in rows:
        batch = f"{line['batch_size']}" + ("" if line["grouped"] else ", random order")
        rates = [line["error"] or "-"] * 2
        if line["examples_per_second"]:
            rates = [f"{line['examples_per_second']:.2f}", f"{line['tokens_per_second']:.0f}"]
        peak = "-" if line["peak_bytes"] is None else f"{line['peak_bytes'] / 1e9:.2f}"
        cells = [SYSTEMS[line["system"]], batch, *rates, peak]
        if shares:
            known = line["executed_share"] is not None
            cells.append(
                f"{line['executed_share']:.0%} ({line['useful_share']:.0%})" if known else "-"
            )
        lines.append(cells)
    return lines_of(lines)


def ratio_table(given: Json) -> str:
    """Return the ratios at the best batch sizes, and in random order, as a Markdown table."""
    lines = [
        ["ratio", "examples/s", "tokens/s", "examples/s, random order", "tokens/s, random order"],
        [":--", *["--:"] * 4],
    ]
    for name in dict.fromkeys([*given["best"], *given["random_order"]]):
        values = [given[part].get(name, {}).get(rate) for part in given for rate in RATES]
        title = " / ".join(SYSTEMS[system] for system in name.split(" / "))
        lines.append([title, *("-" if v is None else f"{v:.2f}" for v in values)])
    return lines_of(lines)


def encoder_line(encoder: Json) -> str:
    """Return the encoder's share of a step as a sentence."""
    return (
        f"The encoder alone, forward and backward: {encoder['time_share']:.1%} of the step's time "
        f"at batch {encoder['batch_size']}, {encoder['memory_share']:.1%} of its peak memory."
    )


def lines_of(rows: list[list[str]]) -> str:
    """Return rows of cells as the lines of a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
