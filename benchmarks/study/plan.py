"""What is left of a study, how long it will take, and how small a difference it can show."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from turngraph.benchmarks.study.config import Size, Study
from turngraph.benchmarks.study.row_scores import discordance, load_rows
from turngraph.benchmarks.study.runs import Run
from turngraph.data.examples import choose_questions
from turngraph.data.jsonlines import read_conversations
from turngraph.inference.questions import DRAW_SEED

ALPHA, POWER = 0.05, 0.8


def smallest_difference(num_questions: int, discordance: float) -> float:
    """The smallest paired difference in H@1 that is found at 80 % power, two-sided at 5 %.

    Of n questions a share d is answered rightly by exactly one of two rows. The difference D of
    the rows' H@1 then has the variance (d - D^2) / n (McNemar's test; Connor 1987), and is found
    with that power where D = (z_0.975 + z_0.8) sqrt((d - D^2) / n), so

        D = z sqrt(d / (n + z^2)),  z = 1.960 + 0.842

    Questions of one conversation hang together, which makes the true number somewhat larger.

    Args:
        num_questions: n.
        discordance: d, in 0..1.
    """
    z = NormalDist().inv_cdf(1 - ALPHA / 2) + NormalDist().inv_cdf(POWER)
    return z * math.sqrt(discordance / (num_questions + z**2))


def minutes_left(run: Run, size: Size, runs: Sequence[Run]) -> float:
    """What a run still takes: the median of those like it that are done, less what it has had.

    Like it are those of the same trainer and kind of evidence that answer in the same way, else all
    of its kind; a training of more questions takes as many times longer. Where none is done, the
    size's own guess. What starts over takes all of it.
    """
    state = run.state
    if state["done"]:
        return 0.0
    minutes = _expected(run, size, runs)
    if run.uninterruptible:
        return minutes
    return max(minutes - state["seconds"] / 60, min(minutes, 1.0))


def _expected(run: Run, size: Size, runs: Sequence[Run]) -> float:
    done = [(r, r.state) for r in runs if r.kind == run.kind]
    done = [(r, state["seconds"] / 60) for r, state in done if state["done"]]
    trains = run.config.training.max_steps != 0
    if run.kind == "train":
        if not trains:
            return 0.5
        done = [pair for pair in done if pair[0].config.training.max_steps != 0]
        done = [(r, minutes * _times_longer(run, r)) for r, minutes in done]
    alike = [m for r, m in done if _sort(r) == _sort(run)] or [m for _, m in done]
    guess = size.train_minutes if run.kind == "train" else size.answer_minutes
    return statistics.median(alike) if alike else guess


def _times_longer(run: Run, done: Run) -> float:
    """How many questions a training takes for each that a done one took, where that is known."""
    asked, took = _questions(run), _questions(done)
    return asked / took if asked and took else 1.0


def _questions(run: Run) -> float | None:
    data, training = run.config.data, run.config.training
    if data.max_train_questions is None or training.max_steps is not None:
        return None
    once = data.max_train_questions * data.train_repeats + data.table_questions
    return once * training.num_epochs


def _sort(run: Run) -> tuple[str, str, str, bool]:
    model = run.config.model
    return run.row.trainer, model.evidence, model.answers, run.proposals is not None


def print_plan(study: Study, size: Size, runs: Sequence[Run], everything: Sequence[Run]) -> None:
    """Print what is left, in its order, and what the size can show."""
    table = Table(title="What is left", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("run", "minutes", "hours in all", "state"):
        table.add_column(heading, justify="left" if heading in ("run", "state") else "right")
    hours, left = 0.0, 0
    for run in runs:
        if (state := run.state)["done"]:
            continue
        minutes = minutes_left(run, size, everything)
        hours, left = hours + minutes / 60, left + 1
        begun = "failed" if state.get("failed") else "begun" if state["seconds"] else ""
        table.add_row(run.name, f"{minutes:.1f}", f"{hours:.1f}", begun)
    console = Console()
    console.print(table)
    console.print(f"{len(runs) - left} of {len(runs)} runs are done; {hours:.1f} hours are left.")
    console.print(power_text(study, size, everything), highlight=False)


def power_text(study: Study, size: Size, runs: Sequence[Run]) -> str:
    """How small a difference the study's questions can show, in words."""
    num = number_of_questions(study, size)
    measured = discordance(study, load_rows(study, runs))
    share, how = (study.discordance, "assumed") if measured is None else (measured, "measured")
    difference = smallest_difference(num, share)
    return (
        f"{num} questions show a paired difference in H@1 of {difference:.3f} or more (80 % power, "
        f"two-sided 5 %, one seed), where two rows differ on {share:.1%} of them ({how})."
    )


def number_of_questions(study: Study, size: Size) -> int:
    """How many questions each row answers."""
    conversations = read_conversations(f"{study.data}/{study.dev}")
    chosen = choose_questions(
        conversations, size.num_questions, study.single_answers_only, DRAW_SEED
    )
    return sum(map(len, chosen.values()))
