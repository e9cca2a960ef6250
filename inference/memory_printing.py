"""Output of the memory commands: tables on a terminal, tab-separated lines and JSON elsewhere."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turngraph.configs.words import plural
from turngraph.data.cli import visible
from turngraph.data.memory_graph.memory_types import Fact, Provenance
from turngraph.data.memory_graph.recall.recollection import each_once, first_facts
from turngraph.data.outputs import is_standard_output

if TYPE_CHECKING:
    from turngraph.data.memory_graph.recall.held_quotes import RecalledTheme
    from turngraph.data.memory_graph.recall.plan_trace import PlanTrace, StepTrace
    from turngraph.data.memory_graph.recall.recollection import ReadAnswer, Recollection
    from turngraph.data.memory_graph.recall.view import QuestionEntity
    from turngraph.data.memory_graph.record.ingest import Remembered
    from turngraph.data.memory_graph.upkeep.show import Turn

logger = logging.getLogger(__name__)

Json = dict[str, Any]
MAX_SOURCES = 5
"""Maximum sources that a line names."""
MAX_ORIGINS = 3
"""Maximum episodes that a fact's line names."""
KINDS = {"simple": "triplet", "thesis": "thesis", "episodic": "episode"}


def clean_line(text: str) -> str:
    """Put a text on one line, without control characters."""
    return visible(" ".join(text.split()))


def print_line(text: str, written_to: str | None = None) -> None:
    """Print a line without control characters.

    Args:
        text: the line.
        written_to: path of what the command has written; if that is standard output, the line goes
            to standard error, so that a reader of the pipe gets nothing but the file.
    """
    beside = written_to is not None and is_standard_output(written_to)
    print(visible(text), file=sys.stderr if beside else sys.stdout)


def print_rows(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table on a terminal, else as tab-separated lines.

    Args:
        headers: headers of the columns; columns of numbers are right-aligned. Where the lines are
            tab-separated, the headers go to standard error.
        rows: one value for each column; None is blank.
    """
    lines = [["" if v is None else clean_line(str(v)) for v in row] for row in rows]
    if not sys.stdout.isatty():
        if lines and any(headers):
            print("\t".join(headers), file=sys.stderr)
        for line in lines:
            print("\t".join(line))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for column, header in enumerate(headers):
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(header, justify="right" if numeric else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table)


def print_json(value: object) -> None:
    """Print a value as one line of JSON; control characters are escaped as JSON escapes them."""
    text = json.dumps(value, ensure_ascii=False, default=dataclasses.asdict)
    if text != visible(text):  # seldom, and a character at a time is slow
        text = "".join(c if c == visible(c) else f"\\u{ord(c):04x}" for c in text)
    print(text)


def print_facts(facts: Sequence[Fact]) -> None:
    """Print facts, one a line: key, kind, text, validity, provenance.

    Scores are left out: where rankings are fused, the facts are not in the order of scores.
    """
    print_rows(["fact", "kind", "text", "holds", "said"], list(map(_fact_row, facts)))


def print_turns(turns: Sequence[Turn], as_json: bool) -> None:
    """Print turns, one a line: episode, kind, speaker, time, source, whether recalled, text."""
    if as_json:
        print_json([dataclasses.asdict(turn) | {"recalled": turn.recalled} for turn in turns])
        return
    headers = ["episode", "kind", "speaker", "said", "source", "recalled", "text"]
    rows = [
        [f"#{one.episode}", one.kind, one.speaker, one.time, one.source,
         "as evidence" if one.recalled else "never", one.text]
        for one in turns
    ]  # fmt: skip
    print_rows(headers, rows)
    if any(not turn.recalled for turn in turns):
        logger.info(
            "a chat's questions and answers are history and never recalled as evidence; "
            "the facts that a question states are"
        )


def _fact_row(fact: Fact) -> list[object]:
    text = f"{fact.text} (a hypothesis)" if fact.hypothesis else fact.text
    origins = [origin(entry) for entry in fact.provenance[:MAX_ORIGINS]]
    if len(fact.provenance) > MAX_ORIGINS:
        origins.append(f"and {len(fact.provenance) - MAX_ORIGINS} more")
    return [fact.key, KINDS[fact.type], text, validity(fact), "; ".join(origins)]


def validity(fact: Fact) -> str:
    """Describe when a fact holds, and whether it may have ended; "" if both are unknown."""
    known = _known_validity(fact)
    if fact.may_have_ended is None:
        return known
    return "; ".join(filter(None, [known, f"may have ended (fact {fact.may_have_ended})"]))


def _known_validity(fact: Fact) -> str:
    if fact.partly_until is not None and fact.valid_to is None:
        return f"partly until {fact.partly_until}"
    if fact.valid_from is None and fact.valid_to is None:
        said = next((place.said_locally for place in fact.provenance if place.said), None)
        return "" if said is None else f"said in {said}"
    if fact.valid_to is None:
        return f"from {fact.valid_from}"
    until = f"until {fact.valid_to}"
    return until if fact.valid_from is None else f"from {fact.valid_from} {until}"


def origin(entry: Provenance) -> str:
    """Describe an episode by its id, time, speaker and source."""
    parts = (entry.said_locally, entry.speaker, entry.source)
    return " ".join([f"#{entry.episode}", *(part for part in parts if part)])


def fact_json(fact: Fact) -> Json:
    """Return a fact as a JSON object."""
    record = dataclasses.asdict(fact)
    record["entities"] = [{"node": node, "name": name} for node, name in fact.entities]
    if fact.ends is not None:
        record["ends"] = dict(zip(("subject", "relation", "object"), fact.ends, strict=True))
    record["score"] = round(fact.score, 6)
    return record


def recollection_json(recollection: Recollection, as_of: str | None) -> Json:
    """Return what was recalled as a JSON object; ``plan`` is null without a plan."""
    return {
        "question": recollection.question,
        "as_of": as_of,
        "mode": recollection.mode,
        "no_answer": recollection.no_answer,
        "by_similarity": recollection.by_similarity,
        "without_themes": recollection.without_themes,
        "entities": _entities(recollection.entities),
        "facts": [fact_json(fact) for fact in recollection.facts],
        "themes": [theme_json(theme) for theme in recollection.themes],
        "behind": list(recollection.behind),
        "plan": None if recollection.plan is None else _plan_json(recollection.plan),
        "answer": None if recollection.answer is None else dataclasses.asdict(recollection.answer),
        "revision": recollection.revision,
        "milliseconds": {name: round(ms, 2) for name, ms in recollection.milliseconds.items()},
    }


def _plan_json(plan: PlanTrace) -> Json:
    return {
        "answer": plan.answer,
        "stopped": plan.stopped,
        "subs": [
            {
                "question": sub.question,
                "answer": sub.answer,
                "stopped": sub.stopped,
                "dropped": sub.dropped,
                "steps": [_step_json(trace) for trace in sub.steps],
            }
            for sub in plan.subs
        ],
        "calls": plan.calls,
        "hits": plan.hits,
        "recalls": plan.recalls,
    }


def _step_json(trace: StepTrace) -> Json:
    return {
        "number": trace.step.number,
        "step": trace.step.text,
        "why": trace.step.why,
        "texts": trace.texts,
        "clues": [
            {"query": clue.query, "start": None if clue.start is None else _entities(clue.start)}
            for clue in trace.clues
        ],
        "facts": [fact.key for fact in trace.facts],
        "answers": trace.answers,
        "guessed": trace.guessed,
        "hits": trace.hits,
    }


def _entities(entities: Iterable[QuestionEntity]) -> list[Json]:
    return [{"name": entity.name, "node": entity.node} for entity in entities]


def step_cells(number: str, trace: StepTrace) -> tuple[str, str, str, str]:
    """Return a step in four cells: number, text, names that it starts at, what it found.

    Guessed answers are not shown, neither for their step nor in the texts of later steps.
    """
    starts = [entity.name for clue in trace.clues[:1] for entity in clue.start or ()]
    revised = " (revised)" if trace.step.why == "revised" else ""
    text = trace.texts[0] if trace.texts and not trace.guessed else trace.step.text
    answer = f" → {trace.answer}" if trace.answer and not trace.guessed else ""
    if trace.guessed:
        starts = [name for name in starts if name in text]
    facts = plural(len(trace.facts), "fact")
    return number, text + revised, ", ".join(dict.fromkeys(starts)), f"{facts}{answer}"


def print_step(number: str, trace: StepTrace) -> None:
    """Print a finished step on one line."""
    cells = [clean_line(cell) for cell in step_cells(number, trace)]
    if sys.stdout.isatty():
        number, text, starts, facts = cells
        print(f"{number:<4}{text:<40}  {starts:<16}  {facts}", flush=True)
    else:
        print("\t".join(cells), flush=True)


def print_themes(shown: Sequence[RecalledTheme]) -> None:
    """Print themes, one a line: number, level, eigenvalue, passages, sources, first quotation."""
    headers = ("theme", "level", "eigenvalue", "passages", "sources", "first quotation")
    print_rows(headers, [_theme_row(theme) for theme in shown])


def _theme_row(theme: RecalledTheme) -> list[object]:
    first = theme.quotes[0].text if theme.quotes else "nothing of it holds now"
    sources = len(theme.sources)
    eigenvalue = round(theme.eigenvalue, 3)
    return [theme.id, theme.level, eigenvalue, theme.num_chunks, sources, first]


def behind_line(sources: Sequence[str | None]) -> str:
    """Name the sources whose latest texts are in no theme yet."""
    named = ", ".join("(no source)" if s is None else s for s in sources[:MAX_SOURCES])
    more = f" and {len(sources) - MAX_SOURCES} more" if len(sources) > MAX_SOURCES else ""
    return f"themes are older than what {named}{more} say; `turngraph memory themes` makes them"


def print_recollection(recollection: Recollection, num_facts: int | None) -> None:
    """Print a reader's answer, then facts, theme by theme if there are themes; or "no answer".

    The steps of a plan are printed as they finish, by ``print_step``; here follows its answer, if
    the last step does not show it and no reader has answered.

    Args:
        recollection: facts, themes or episodes that were recalled.
        num_facts: most statements that are printed without themes, each once; None: all.
    """
    _log_remarks(recollection)
    if recollection.no_answer:
        print("no answer")
        return
    if recollection.answer is not None:
        print_line(answer_line(recollection.answer))
    elif recollection.plan is not None:
        last = [trace.answer for sub in recollection.plan.subs[-1:] for trace in sub.steps[-1:]]
        if recollection.plan.answer is not None and recollection.plan.answer not in last:
            print_line(f"answer: {recollection.plan.answer} (not calibrated)")
    if not recollection.themes:
        print_facts(first_facts(each_once(recollection.facts), num_facts))
    by_key = {fact.key: fact for fact in recollection.facts}
    for theme in recollection.themes:
        print_line(
            f"theme {theme.id}{' (of themes)' if theme.level == 2 else ''}, "
            f"closeness {theme.score:.3f}: {plural(theme.num_chunks, 'passage')} "
            f"of {plural(len(theme.sources), 'source')}"
        )
        if theme.summary is not None:
            print_line(" ".join([theme.summary, *theme.questions, f"(by {theme.maker})"]))
        print_facts([by_key[key] for key in theme.facts])


def answer_line(answer: ReadAnswer) -> str:
    """Describe a reader's answer in one line: text, probability, and the fact that contains it."""
    sure = [] if answer.confidence is None else [f"confidence {answer.confidence:.2f}"]
    sure = sure or [f"probability {answer.probability:.2f}, not calibrated"]
    if answer.withheld is not None:  # it may be in the evidence all the same
        return clean_line(f"no answer that is sure enough ({'; '.join(sure)})")
    if answer.span is not None:
        sure.append("fact {}, characters {} to {}".format(answer.fact, *answer.span))
    return clean_line(f"answer: {answer.text} ({'; '.join(sure)})")


def _log_remarks(recollection: Recollection) -> None:
    """Log remarks about how the facts were found."""
    if recollection.behind:
        logger.info("%s", behind_line(recollection.behind))
    dropped = sum(sub.dropped for sub in recollection.plan.subs) if recollection.plan else 0
    if dropped:
        logger.info("%s left out: a step may refer to earlier steps only", plural(dropped, "step"))
    if recollection.no_answer:
        return
    if recollection.without_themes:
        logger.info(
            "no themes: all facts are searched by similarity instead; "
            "`turngraph memory themes` makes themes"
        )
    elif recollection.by_similarity:
        logger.info("the question names no known object: facts by similarity alone")


def theme_json(theme: RecalledTheme) -> Json:
    """Return a theme as a JSON object."""
    return {
        "theme": theme.id,
        "level": theme.level,
        "eigenvalue": round(theme.eigenvalue, 6),
        "score": round(theme.score, 6),
        "chunks": theme.num_chunks,
        "sources": list(theme.sources),
        "summary": theme.summary,
        "maker": theme.maker,
        "questions": list(theme.questions),
        "quotes": [fact_json(fact) for fact in theme.quotes],
        "facts": list(theme.facts),
    }


def remembered_line(done: Remembered) -> str:
    """Describe in one line what was added and what it cost."""
    known = f" ({done.skipped} known already)" if done.skipped else ""
    cost = "".join(f", {name} {value:g}" for name, value in _spent(done.cost))
    return (
        f"{plural(done.episodes, 'episode')}{known}: {plural(done.objects, 'new object')}, "
        f"{plural(done.theses, 'thesis', 'theses')}, {plural(done.triplets, 'triplet')}, "
        f"{_superseded(done)} superseded; {done.seconds:.1f} s{cost}"
    )


def _superseded(done: Remembered) -> str:
    theses = plural(done.superseded_theses, "thesis", "theses")
    return f"{theses} and {plural(done.superseded - done.superseded_theses, 'triplet')}"


def _spent(cost: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in cost.items() if value]
