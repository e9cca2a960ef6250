"""Formats the results of ``infer_speed.py`` as JSON and as Markdown tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from turngraph.benchmarks.speed.train_table import lines_of

Json = dict[str, Any]
SYSTEMS = {
    "graph": "ours, graph",
    "text": "ours, text",
    "single": "one by one, graph",
    "merged": "one by one, graph, LoRA merged",
    "pyg": "GRetriever",
}
OURS = {"graph", "text"}


@dataclass
class Cell:
    """Measurements of one system.

    Args:
        num_questions: questions per round.
        seconds: seconds of each round.
        prompt_seconds: seconds of our LM's prompt passes alone, in each round.
        step_seconds: seconds of our LM's decoding steps alone, in each round.
        passes: numbers of tokens and steps in our LM's passes.
        answers: answers of the last round.
        num_tokens: tokens generated per round.
        peak_bytes: peak while answering, with weights.
        error: why the measurement stopped.
    """

    num_questions: int
    seconds: list[float] = field(default_factory=list)
    prompt_seconds: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    passes: dict[str, int] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    num_tokens: int = 0
    peak_bytes: int | None = None
    error: str | None = None


def report(cells: dict[str, Cell], facts: Json) -> Json:
    """Return all results as JSON."""
    rows = {name: row(cell) for name, cell in cells.items()}
    known = {name: line["questions_per_second"] for name, line in rows.items()}
    ratios = {
        f"{ours} / {peer}": known[ours] / known[peer]
        for ours in OURS & known.keys()
        for peer in known
        if known[ours] and known[peer] and peer not in OURS
    }
    ceilings = {
        name: ceiling(cell, facts["build_seconds"])
        for name, cell in cells.items()
        if cell.step_seconds
    }
    result = facts | {"rows": rows, "ratios": ratios, "ceilings": ceilings}
    batched, single = (cells.get(name) for name in ("graph", "single"))
    if batched and single and batched.answers and single.answers:
        pairs = zip(batched.answers, single.answers, strict=True)
        result["answers_that_differ"] = sum(one != other for one, other in pairs)
    return result


def row(cell: Cell) -> Json:
    """Return one system's results; rates are None without a finished round."""
    seconds = median(cell.seconds) if cell.seconds else None
    return {
        "questions_per_second": seconds and cell.num_questions / seconds,
        "tokens_per_answer": cell.num_tokens / cell.num_questions if seconds else None,
        "peak_bytes": cell.peak_bytes,
        "seconds": cell.seconds,
        "error": cell.error,
    }


def ceiling(cell: Cell, build_seconds: list[float]) -> Json:
    """Return the speed of our LM's passes alone, and the share of it that ours reaches.

    Shares are computed per round, as a machine's speed may change between rounds; medians count.

    Args:
        cell: measurements of one of our systems.
        build_seconds: seconds to build a round's examples: retrieval, memory, graphs, token ids.
    """
    rounds = list(zip(cell.prompt_seconds, cell.step_seconds, cell.seconds, strict=True))
    building = median(build_seconds) if build_seconds else None
    prompts, steps = median(cell.prompt_seconds), median(cell.step_seconds)
    return cell.passes | {
        "prompt_tokens_per_second": cell.passes["prompt_tokens"] / prompts,
        "steps_per_second": cell.passes["steps"] / steps if steps else None,
        "step_tokens_per_second": cell.passes["step_tokens"] / steps if steps else None,
        "questions_per_second": cell.num_questions / (prompts + steps),
        "share": median((p + s) / whole for p, s, whole in rounds),
        "share_with_graphs": building
        and median((p + s) / (whole + building) for p, s, whole in rounds),
    }


def markdown(result: Json) -> str:
    """Return the Markdown tables: systems, ratios, ceilings."""
    parts = [introduction(result), table(result["rows"])]
    if result["ratios"]:
        parts.append(ratio_table(result["ratios"]))
    if result["ceilings"]:
        parts.append(ceiling_table(result["ceilings"]))
    if "answers_that_differ" in result:
        parts.append(
            f"In {result['dtype']}, {result['answers_that_differ']} of {result['num_questions']} "
            "answers of ours, graph, differ between batches and one by one."
        )
    return "\n\n".join(parts)


def introduction(result: Json) -> str:
    """Return a paragraph on the measurement and the machine."""
    turns = "systems in turn" if result["interleaved"] else "one system after the other"
    length = "all of" if result["no_end"] else "at most"
    lines = [
        f"{result['model']}, {result['dtype']}; {result['device']}, {result['num_threads']} "
        f"threads; commit {result['commit']}, seed {result['seed']}. {result['num_questions']} "
        f"questions a round, {result['tokens_per_question']:.0f} prompt tokens each, {length} "
        f"{result['max_new_tokens']} new tokens; ours in batches of {result['batch_tokens']} "
        f"tokens, GRetriever of {result['pyg_batch_size']} questions; medians of "
        f"{result['rounds']} rounds, {turns}.",
        f"`{result['command']}`",
    ]
    if not result["complete"]:
        lines.append("Time ran out (--max_minutes): rows show the rounds finished until then.")
    return "\n\n".join(lines)


def table(rows: dict[str, Json]) -> str:
    """Return the systems' rates as a Markdown table."""
    lines = [
        ["system", "questions/s", "new tokens an answer", "peak memory, GB"],
        [":--", *["--:"] * 3],
    ]
    for name, line in rows.items():
        rates = [line["error"] or "-"] * 2
        if line["questions_per_second"]:
            rates = [f"{line['questions_per_second']:.2f}", f"{line['tokens_per_answer']:.1f}"]
        peak = "-" if line["peak_bytes"] is None else f"{line['peak_bytes'] / 1e9:.2f}"
        lines.append([SYSTEMS[name], *rates, peak])
    return lines_of(lines)


def ratio_table(ratios: dict[str, float]) -> str:
    """Return our questions per second relative to the others', as a Markdown table."""
    lines = [["ratio", "questions/s"], [":--", "--:"]]
    for name, ratio in ratios.items():
        lines.append([" / ".join(SYSTEMS[one] for one in name.split(" / ")), f"{ratio:.2f}"])
    return lines_of(lines)


def ceiling_table(ceilings: dict[str, Json]) -> str:
    """Return the LM's passes alone, and the share that ours reaches, as a Markdown table."""
    head = ["the LM's passes alone", "prompt tokens/s", "steps/s", "step tokens/s", "questions/s"]
    lines = [[*head, "ours reaches", "with graphs"], [":--", *["--:"] * 6]]
    for name, line in ceilings.items():
        rates = [
            line[f"{kind}_per_second"]
            for kind in ("prompt_tokens", "steps", "step_tokens", "questions")
        ]
        shares = [line["share"], line["share_with_graphs"]]
        cells = ["-" if rate is None else f"{rate:.4g}" for rate in rates]
        cells += ["-" if share is None else f"{share:.1%}" for share in shares]
        lines.append([SYSTEMS[name], *cells])
    return lines_of(lines)
