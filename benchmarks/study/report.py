"""Writes the report of a study from the answers so far: tables and tests."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from turngraph.benchmarks.study.config import Row, Size, Study
from turngraph.benchmarks.study.hits import write_hits
from turngraph.benchmarks.study.plan import power_text
from turngraph.benchmarks.study.row_scores import (
    Key,
    RowScores,
    difference,
    load_rows,
    row_estimate,
)
from turngraph.benchmarks.study.runs import Json, Run
from turngraph.benchmarks.tables import cell, table
from turngraph.configs.schema import Config
from turngraph.data.json_fields import iter_lines
from turngraph.data.outputs import whole_file
from turngraph.data.scoring.score import Estimate, group_of

MIN_TURN = 10
"""Fewest questions of a turn; the last turns with fewer form one group."""
TITLES = {
    "source": "By the source of the answer",
    "held_by": "By the source of the passages of E_t that hold the answer",
    "turn": "By turn",
    "answer_type": "By type of answer",
    "domain": "By domain",
}
Rows = dict[str, RowScores]


def write_report(
    study: Study, size: Size, runs: Sequence[Run], *, output: Path, command: str
) -> None:
    """Write ``study.md``, ``study.json`` and ``hits.csv`` into the study's folder.

    Args:
        study: rows, claims and breakdowns.
        size: the size; its number of questions determines the smallest detectable difference.
        runs: all runs of the study; finished ones are reported.
        output: the study's folder.
        command: command line that makes the study.
    """
    rows = load_rows(study, runs)
    if not rows:
        return
    numbers = {name: _numbers(study, row, rows) for name, row in rows.items()}
    made = f"Made by `{command}`.\n"
    text = "\n".join([*_report(study, size, runs, rows, numbers), made])
    for name, content in (
        ("study.md", text),
        ("study.json", json.dumps(_finite(numbers), indent=1) + "\n"),
    ):
        with whole_file(output / name) as file:
            file.write(content)
    write_hits(rows, output / "hits.csv")


def _numbers(study: Study, row: RowScores, rows: Rows) -> Json:
    """Return one row's numbers for the tables and study.json."""
    compared = {}
    for name in study.baselines:
        if name in rows and name != row.row.name:
            found = difference(rows[name], row, "hit_at_1")
            compared[name] = None if found is None else {"estimate": found[0], "p": found[1]}
    return {
        "seeds": sorted(row.by_seed),
        "hit_at_1": row_estimate(row, "hit_at_1"),
        "hit_at_5": row_estimate(row, "hit_at_5"),
        "answer_in_evidence": row_estimate(row, "answer_in_evidence"),
        "minus": compared,
    }


def _report(
    study: Study, size: Size, runs: Sequence[Run], rows: Rows, numbers: Json
) -> Iterator[str]:
    folders = {run.folder: run for run in runs}.values()
    done = sum(run.state["done"] for run in folders)
    yield f"# {study.title}: the study\n"
    yield from _settings(study, runs, rows)
    yield f"{done} of {len(folders)} runs are done.\n"
    yield (
        "H@1 and H@5 as the paper counts them. Intervals are 95 % bootstrap intervals over "
        "conversations and, where a row has several, seeds. p is that of a paired test (signs of "
        "whole conversations flipped, two-sided, not corrected for their number). "
        f"{power_text(study, size)}\n"
    )
    yield from _claims(study, rows)
    for title, holds in _SECTIONS.items():
        yield from _table(title, study, {n: r for n, r in rows.items() if holds(r.row)}, numbers)
    yield from _breakdowns(study, {n: r for n, r in rows.items() if r.row.core})
    yield from _runs(rows)


_SECTIONS: dict[str, Callable[[Row], bool]] = {
    "Core rows": lambda row: row.core,
    "Rows that answer with another row's checkpoint": lambda row: (
        not row.core and row.checkpoint_of is not None
    ),
    "Other rows": lambda row: not row.core and row.checkpoint_of is None,
}


def _settings(study: Study, runs: Sequence[Run], rows: Rows) -> Iterator[str]:
    """Yield the settings of the trained rows; those that differ from the first's come after it."""
    first = next((run.config for run in runs if run.config.training.max_steps != 0), runs[0].config)
    scores = next(iter(next(iter(rows.values())).by_seed.values()))
    yield (
        f"`{first.model.base_model}`, {len(scores.predictions)} questions of `{study.dev}`, gold "
        f"history. {_setting(first)}."
    )
    others: dict[str, list[str]] = {}
    for row in (row for row in rows.values() if row.row.checkpoint_of is None):
        config = row.runs[-1].config
        if config.training.max_steps != 0 and (setting := _setting(config)) != _setting(first):
            others.setdefault(setting, []).append(row.row.label)
    if others:
        named = (f"- {'; '.join(labels)}: {setting}." for setting, labels in others.items())
        yield "\n" + "\n".join(named) + "\n"


def _setting(config: Config) -> str:
    data, evidence, settings = config.data, config.evidence, config.training
    epochs = "1 epoch" if settings.num_epochs == 1 else f"{settings.num_epochs:g} epochs"
    limit = "" if evidence.max_nodes is None else f" within {evidence.max_nodes} tokens"
    return (
        f"{data.max_train_questions or 'All'} training questions in steps of "
        f"{settings.batch_size or settings.batch_tokens} x {settings.batches_per_step}, "
        f"{epochs}; E_t of {evidence.top_k} passages{limit}"
    )


def _claims(study: Study, rows: Rows) -> Iterator[str]:
    lines = []
    for claim in study.claims:
        if claim.row in rows and claim.than in rows:
            found = difference(rows[claim.than], rows[claim.row], "hit_at_1")
            if found is not None:
                names = f"{rows[claim.row].row.label} − {rows[claim.than].row.label}"
                lines.append((claim.text, names, cell(found[0], "+"), _p(found[1])))
    if lines:
        heads = ["claim", "rows", "difference in H@1", "p"]
        yield f"## Claims, the paper's and our own\n\n{table(heads, lines)}\n"


def _table(title: str, study: Study, rows: Rows, numbers: Json) -> Iterator[str]:
    if not rows:
        return
    labels = {row.name: row.label for row in study.rows}
    heads = ["row", "seeds", "H@1", "H@5", "answer in E_t"]
    heads += [f"to {labels[name]}" for name in study.baselines]
    lines = []
    for name, row in rows.items():
        found = numbers[name]
        cells = [row.row.label, str(len(found["seeds"])) if not row.untrained else "–"]
        cells += [cell(found[m]) for m in ("hit_at_1", "hit_at_5")]
        cells.append(f"{found['answer_in_evidence'].mean:.3f}")
        lines.append([*cells, *(_compared(found["minus"].get(one)) for one in study.baselines)])
    yield f"## {title}\n\n{table(heads, lines)}\n"


def _compared(found: Json | None) -> str:
    return "" if found is None else f"{cell(found['estimate'], '+')}, p {_p(found['p'])}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _breakdowns(study: Study, rows: Rows) -> Iterator[str]:
    """Yield a table of H@1 for each grouping of the questions, with a column for each group."""
    for by in study.by if rows else ():
        groups = question_groups(study, rows, by)
        counts = Counter(groups.values())
        names = list(dict.fromkeys(groups.values()))
        heads = ["row", *(f"{name} ({counts[name]})" for name in names)]
        lines = [
            [row.row.label, *(cell(_of_group(row, groups, name)) for name in names)]
            for row in rows.values()
        ]
        yield f"## {TITLES[by]}, H@1\n\n{table(heads, lines)}\n"


def _of_group(row: RowScores, groups: dict[Key, str], name: str) -> Estimate:
    return row_estimate(row, "hit_at_1", lambda key: groups.get(key) == name)


def question_groups(study: Study, rows: Rows, by: str) -> dict[Key, str]:
    """Return the group of every question, the same for all rows, with groups in order.

    Groups that depend on the row, such as those by E_t, are taken from the first baseline. The last
    turns with fewer than ``MIN_TURN`` questions each form one group; if that has fewer, it includes
    the turn before them. A turn with few questions before a turn with enough is its own group.
    """
    name = next((name for name in study.baselines if name in rows), next(iter(rows)))
    scores = next(iter(rows[name].by_seed.values()))
    found = {(p.conversation, p.turn): group_of(p, by, scores.path) for p in scores.predictions}
    if by == "turn":
        return _turn_groups({key: int(turn) for key, turn in found.items()})
    named = {key: str(group) for key, group in found.items()}
    return dict(sorted(named.items(), key=lambda item: (item[1] == "nothing", item[1])))


def _turn_groups(turns: dict[Key, int]) -> dict[Key, str]:
    counts, joined, num_joined = Counter(turns.values()), math.inf, 0
    for turn in sorted(counts, reverse=True):
        if counts[turn] >= MIN_TURN and not 0 < num_joined < MIN_TURN:
            break
        joined, num_joined = turn, num_joined + counts[turn]
    in_order = sorted(turns.items(), key=lambda item: item[1])
    return {k: f"turn {t}" if t < joined else f"turn {joined}+" for k, t in in_order}


def _runs(rows: Rows) -> Iterator[str]:
    lines = []
    for run in {run.folder: run for row in rows.values() for run in row.runs}.values():
        state = run.state
        commits = ", ".join(str(c)[:7] + "+" * str(c).endswith("+") for c in state["commits"])
        minutes = f"{state['seconds'] / 60:.1f}"
        lines.append((run.name, minutes, _gates(run), commits, state.get("machine", "")))
    heads = ["run", "minutes", "residual gates, change of node states", "commit", "machine"]
    yield f"## Runs\n\n{table(heads, lines)}\n"


def _gates(run: Run) -> str:
    """Return the encoder's residual gates and relative change at the log's last step."""
    log = run.folder / "run" / "log.jsonl"
    if not log.is_file():
        return ""
    lines = [record for _, record in iter_lines(log)]
    last: Json = next((line for line in reversed(lines) if "relative_change" in line), {})
    gates = [f"{value:.3f}" for name, value in last.items() if name.startswith("residual_gate_")]
    return f"{', '.join(gates)}; {last['relative_change']:.3f}" if last else ""


def _finite(value: object) -> object:
    """Return the value with estimates as dictionaries, and None for NaN, which JSON lacks."""
    if isinstance(value, Estimate):
        return {k: None if math.isnan(v) else v for k, v in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return value
