"""Prints answers, their evidence and their explanations to a terminal, a pipe or a file."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from turngraph.configs.words import plural
from turngraph.data.cli import visible
from turngraph.data.examples import Example
from turngraph.data.json_fields import Json
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.confidence import is_found
from turngraph.data.scoring.explanation import ExplainedTurn, origin, origin_words
from turngraph.inference.text_stream import TextStream

ANSWER, QUIET = "green", "dim"
MOST_REASONS = 10
"""Maximum number of passages, and of entities, that ``/why`` lists one by one."""


class AnswerStream:
    """Prints an answer word by word as it is generated; wraps lines if the console is a terminal.

    Args:
        console: where the words are printed.
        prompt: decodes the token ids.
        held: print nothing before the end, as the answer may be withheld.
    """

    def __init__(self, console: Console, prompt: Prompt, held: bool = False) -> None:
        self.console, self.text = console, TextStream(prompt, held)
        self._column = 0

    def add(self, ids: Tensor) -> None:
        """Add one token, [1], as a model's ``generate`` passes it to ``on_token``."""
        self._write(self.text.add(ids))

    def end(self, answer: str | None) -> None:
        """Print the rest of an answer and end the line; None if generation was stopped."""
        if answer is not None:
            if self.text.restarts(answer):
                self.console.out()
                self._column = 0
            self._write(self.text.end(answer) if answer else "(no answer)")
        if self.text.text or answer is not None:
            self.console.out()

    def _write(self, new: str) -> None:
        """Print new text, wrapped at the terminal's width."""
        width = self.console.width if self.console.is_terminal else sys.maxsize
        for gap, word in re.findall(r"( *)([^ ]*)", visible(new)):
            size = cell_len(gap + word)
            if self._column and gap and self._column + size > width:
                gap, size = "\n", cell_len(word)
                self._column = 0
            self.console.out(gap + word, style=ANSWER, highlight=False, end="")
            self._column += size
            if self._column > width:  # the terminal has broken a long word
                self._column %= width


def show_question(console: Console, question: str) -> None:
    """Print a question that was not typed at the prompt."""
    console.out(f"> {visible(question)}", style="bold", highlight=False)


def show_answer(console: Console, prompt: Prompt, record: Json, example: Example) -> None:
    """Print a question, its answer and the best passages that the model was given."""
    show_question(console, record["question"])
    AnswerStream(console, prompt).end(record["answer"])
    show_probability(console, record)
    show_passages(console, record, example)


def show_probability(console: Console, record: Json) -> None:
    """Print how sure the model is: its own probability, and the calibrated one if there is one."""
    words = f"probability {percent(math.exp(record['logprob']))}"
    if record.get("confidence") is not None:
        words = f"confidence {percent(record['confidence'])}, {words}"
    if "withheld" in record:
        why = "" if is_found(record) else ", as no passage matches the question"
        words += f"; withheld{why}: {visible(record['withheld']) or '(no answer)'}"
    console.out(f"  {words}", style=QUIET, highlight=False)


def show_passages(console: Console, record: Json, example: Example, num_passages: int = 3) -> None:
    """Print passages that the model was given; those that name the answer, even withheld, first.

    A passage with the answer's words names the answer, even if it was found in another one.
    The score of a passage that was retrieved for this turn is followed by its share of all such
    scores, which can be compared between turns.
    """
    is_withheld = "withheld" in record
    answer = record["withheld" if is_withheld else "answer"].casefold()
    named = "withheld answer" if is_withheld else "answer"
    shares = score_shares(example)
    held = {id(i) for i in example.evidence if answer and answer in i.evidence.text.casefold()}
    ordered = sorted(example.evidence, key=lambda item: id(item) not in held)
    for item in ordered[:num_passages]:
        where = origin_words(origin(item, example.turn), item.from_turn)
        share = f" ({shares[id(item)]:.0%})" if id(item) in shares else ""
        names = f", names the {named}" if id(item) in held else ""
        tag = f"[{item.evidence.source}, {item.score:.2f}{share}, {where}{names}]"
        show_folded(console, f"{tag} {item.evidence.text}", QUIET)


def score_shares(example: Example) -> dict[int, float]:
    """Return the share of each passage retrieved for this turn in their scores, by ``id``."""
    new = [item for item in example.evidence if origin(item, example.turn) == "new"]
    total = sum(item.score for item in new)
    return {id(item): item.score / total for item in new} if total > 0 else {}


def percent(probability: float) -> str:
    """Return a probability in percent."""
    return f"{probability:.0%}" if probability >= 0.01 else "less than 1%"


def show_folded(console: Console, text: str, style: str = "") -> None:
    """Print a text wrapped and indented, continuation lines further than the first."""
    plain = Text(visible(" ".join(text.split())))
    lines = plain.wrap(console, max(console.width - 4, 16))
    for index, line in enumerate(lines):
        indent = "    " if index else "  "
        console.out(indent + line.plain.rstrip(), style=style, highlight=False)


def show_evidence(console: Console, example: Example, word: str) -> None:
    """Print a table of all passages that the model was given.

    Args:
        console: where the table is printed.
        example: the example that was answered.
        word: print only passages whose text, source or origin contains it, ignoring case.
    """
    rows = []
    for rank, item in enumerate(example.evidence, 1):
        passage, where = item.evidence, origin_words(origin(item, example.turn), item.from_turn)
        if word.casefold() in f"{passage.source} {where} {passage.text}".casefold():
            rows.append((str(rank), f"{item.score:.2f}", passage.source, where, passage.text))
    total = len(example.evidence)
    if rows:
        show_table(console, ("", "score", "source", "origin", "evidence"), rows, word)
    if not total:
        console.out("No evidence was given.")
    elif word:
        console.out(
            visible(f"{len(rows)} of {plural(total, 'passage')} with {word!r}"), highlight=False
        )


def show_table(
    console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], word: str = ""
) -> None:
    """Print a table that fits a console of any width.

    Args:
        console: where the table is printed.
        heads: column headers; "score" and "share" are columns of numbers.
        rows: cells of each row; only the last cell is wrapped.
        word: printed in bold wherever it occurs in a last cell.
    """
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="bold",
        show_header=any(heads),
    )
    for head in heads[:-1]:
        numeric = head in ("", "score", "share") and any(heads)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(head, justify=justify, no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    for row in rows:
        cells = [Text(visible(" ".join(cell.split()))) for cell in row]
        if word:
            cells[-1].highlight_words([word], "bold", case_sensitive=False)
        table.add_row(*cells)
    console.print(table)


def show_reasons(console: Console, turn: ExplainedTurn) -> None:
    """Print the shares of passages, and of entities that link them, in an answer."""
    if turn.logprob is None:
        console.out("No passage has this answer.")
    else:
        probability = percent(math.exp(turn.logprob))
        console.out(f"The model gave its answer a probability of {probability}.", highlight=False)
    if not turn.passages:
        console.out("No evidence was given.")
        return
    order = sorted(range(len(turn.passages)), key=lambda i: -turn.passages[i].share)
    rows = [
        (
            str(i + 1),
            f"{turn.passages[i].share:.0%}",
            turn.passages[i].source,
            origin_words(turn.passages[i].origin, turn.passages[i].from_turn),
            turn.passages[i].text,
        )
        for i in order[:MOST_REASONS]
    ]
    show_table(console, ("", "share", "source", "origin", "evidence"), rows)
    if rest := order[MOST_REASONS:]:
        total = sum(turn.passages[i].share for i in rest)
        console.out(f"{plural(len(rest), 'more passage')}: {total:.0%} together", highlight=False)
    show_joints(console, turn)


def show_joints(console: Console, turn: ExplainedTurn) -> None:
    """Print the entities that link passages, the largest share first."""
    linking: dict[str, tuple[str, float, set[int]]] = {}
    for edge in turn.edges:
        label, share, passages = linking.get(edge.entity, (edge.label, 0.0, set()))
        ends = {edge.first + 1, edge.second + 1}
        linking[edge.entity] = (label, share + edge.share, passages | ends)
    if not linking:
        return
    console.out("Linked by", style="bold")
    best = sorted(linking.values(), key=lambda entity: -entity[1])
    for label, share, passages in best[:MOST_REASONS]:
        show_folded(
            console, f"{share:.0%} {label}: passages {', '.join(map(str, sorted(passages)))}"
        )
    if rest := best[MOST_REASONS:]:
        total = sum(share for _, share, _ in rest)
        show_folded(console, f"{total:.0%} {plural(len(rest), 'more entity', 'more entities')}")
