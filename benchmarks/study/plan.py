"""Plans a study: the runs that are left, their duration, and the smallest detectable difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from turngraph.benchmarks.study.config import Size, Study
from turngraph.benchmarks.study.runs import Run
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.jsonlines import read_conversations
from turngraph.inference.questions import DRAW_SEED

ALPHA, POWER = 0.05, 0.8


def smallest_difference(num_questions: int, discordance: float) -> float:
    """Return the smallest paired difference in H@1 found with 80 % power, two-sided at 5 %.

    Of n questions, exactly one of two rows answers a share d correctly. The difference D of the
    rows' H@1 then has variance (d - D^2) / n (McNemar's test; Connor 1987), and is found with that
    power if D = (z_0.975 + z_0.8) sqrt((d - D^2) / n), so

        D = z sqrt(d / (n + z^2)),  z = 1.960 + 0.842

    Questions of one conversation are correlated, which makes the true value somewhat larger.

    Args:
        num_questions: n.
        discordance: d, in 0..1.
    """
    z = NormalDist().inv_cdf(1 - ALPHA / 2) + NormalDist().inv_cdf(POWER)
    return z * math.sqrt(discordance / (num_questions + z**2))


def minutes_left(run: Run, size: Size, runs: Sequence[Run]) -> float:
    """Return the minutes that a run still needs: the median of similar finished runs, less its own.

    Similar runs are trainings, or answers, with the same kind of evidence and way of answering.
    Without one the estimate of the size is used. A run that cannot resume needs all its time.
    """
    state = run.state
    if state["done"]:
        return 0.0
    alike = (one.state for one in runs if _kind_of(one) == _kind_of(run))
    done = [float(one["seconds"]) for one in alike if one["done"]]
    estimate = size.train_minutes if run.kind == "train" else size.answer_minutes
    if run.kind == "train" and run.config.training.max_steps == 0:
        estimate = 0.5
    minutes = statistics.median(done) / 60 if done else estimate
    if run.uninterruptible:
        return minutes
    return max(minutes - float(state["seconds"]) / 60, min(minutes, 1.0))


def _kind_of(run: Run) -> tuple[object, ...]:
    training, model = run.config.training, run.config.model
    how = training.max_steps == 0, training.loop, run.row.trainer
    return run.kind, *how, model.evidence, model.answers, model.layer > 0


def print_plan(study: Study, size: Size, runs: Sequence[Run], all_runs: Sequence[Run]) -> None:
    """Print the runs that are left, in order, and how small a difference the size can show."""
    table = Table(title="What is left", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("run", "minutes", "hours in all", "state"):
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right")
    hours, left = 0.0, 0
    for run in runs:
        if (state := run.state)["done"]:
            continue
        minutes = minutes_left(run, size, all_runs)
        hours, left = hours + minutes / 60, left + 1
        begun = "failed" if state.get("failed") else "begun" if state["seconds"] else ""
        table.add_row(run.name, f"{minutes:.1f}", f"{hours:.1f}", begun)
    console = Console()
    console.print(table)
    console.print(f"{len(runs) - left} of {len(runs)} runs are done; {hours:.1f} hours are left.")
    console.print(power_text(study, size), highlight=False)


def power_text(study: Study, size: Size) -> str:
    """Return a sentence on the smallest difference that the study's questions can show."""
    num = num_questions(study, size)
    difference = smallest_difference(num, study.discordance)
    return (
        f"{num} questions show a paired difference in H@1 of {difference:.3f} or more (80 % power, "
        f"two-sided 5 %, one seed), where two rows differ on {study.discordance:.1%} of them."
    )


def num_questions(study: Study, size: Size) -> int:
    """Return the number of questions that each row answers."""
    conversations = read_conversations(f"{study.data}/{study.dev}")
    chosen = choose_questions(
        conversations, size.num_questions, study.single_answers_only, DRAW_SEED
    )
    return sum(map(len, chosen.values()))
