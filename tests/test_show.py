"""Tests of how answers and evidence are printed: streamed by word, wrapped, never retracted."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from turngraph.data.cli import visible
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.explanation import ExplainedPassage, ExplainedTurn, PassageEdge
from turngraph.data.types import NOT_IN_EVIDENCE, Evidence, Retrieved
from turngraph.inference.display import (
    AnswerStream,
    show_answer,
    show_evidence,
    show_folded,
    show_passages,
    show_probability,
    show_question,
    show_reasons,
    show_table,
)
from turngraph.inference.text_stream import settled
from turngraph.tests.tiny import tiny_examples, tiny_tokenizer

TINY = Prompt(tiny_tokenizer())


def shown_word_by_word(prompt: Prompt, ids: list[int]) -> list[str]:
    """Return the console's text after each token id, and at the end."""
    file = io.StringIO()
    stream = AnswerStream(Console(file=file, color_system=None, width=20), prompt)
    seen = []
    for token in ids:
        stream.add(torch.tensor([token]))
        seen.append(file.getvalue())
    stream.end(prompt.answer_text(ids))
    return [*seen, file.getvalue()]


def test_a_narrow_terminal_still_gets_lines_of_16_characters() -> None:
    file = io.StringIO()
    show_folded(
        Console(file=file, color_system=None, width=9), "sixteen letters, seventeen letters"
    )
    assert file.getvalue() == "  sixteen letters,\n    seventeen\n    letters\n"
    file = io.StringIO()
    show_folded(Console(file=file, color_system=None, width=24), f"{'a' * 20} {'b' * 20}")
    assert file.getvalue() == f"  {'a' * 20}\n    {'b' * 20}\n"


def test_words_that_just_fit_stay_on_the_line() -> None:
    file = io.StringIO()
    console = Console(file=file, color_system=None, width=10, force_terminal=True)
    AnswerStream(console, TINY).end("abcd efghi jk")
    assert file.getvalue() == "abcd efghi\njk\n"
    file.truncate(0)
    file.seek(0)
    AnswerStream(console, TINY).end("abcd efghi jk mnopqrs t")
    assert file.getvalue() == "abcd efghi\njk mnopqrs\nt\n"
    file.truncate(0)
    file.seek(0)
    stream = AnswerStream(console, TINY)
    for token in TINY.target_ids("one two three"):
        stream.add(torch.tensor([token]))
    stream.end("abcd efghi jk")  # another text: it begins a line
    assert file.getvalue().endswith("\nabcd efghi\njk\n")
    file.truncate(0)
    file.seek(0)
    console.out("abcd efghi\njk")
    AnswerStream(console, TINY).end(f"{'x' * 25} 6789 1")  # the terminal breaks the first word
    assert file.getvalue() == f"abcd efghi\njk\n{'x' * 25} 6789\n1\n"


def test_a_long_word_in_a_table_is_folded() -> None:
    file = io.StringIO()
    show_table(Console(file=file, color_system=None, width=20), ("", "text"), [("1", "x" * 50)])
    assert file.getvalue().count("x") == 1 + 50  # that of the header, too


def check_stream(prompt: Prompt, ids: list[int]) -> None:
    seen = shown_word_by_word(prompt, ids)
    answer = visible(prompt.answer_text(ids)) or "(no answer)"
    assert seen[-1] == answer + "\n"
    assert all(answer.startswith(part) for part in seen[:-1])


@given(st.lists(st.integers(0, len(TINY.tokenizer) - 1), max_size=30))
def test_any_token_ids_stream_as_prefixes_of_the_answer(ids: list[int]) -> None:
    check_stream(TINY, ids)


@pytest.mark.parametrize(
    "text", ["東京 und Köln, dann 北京市だ", "👍🏽 naïve \u0301e 👩‍👩‍👧 end", "a  b"]
)
def test_no_character_is_shown_before_it_is_complete(text: str, inst_tokenizer: Any) -> None:
    for prompt in (TINY, Prompt(inst_tokenizer)):
        ids = prompt.target_ids(text)
        check_stream(prompt, ids)
        seen = shown_word_by_word(prompt, ids)
        assert not any("\ufffd" in part for part in seen)
        assert 2 < len(set(seen)) < len(ids)


@given(st.lists(st.integers(0, 255), max_size=12))
@example([*"東京".encode(), 0xE6])
@example([*b"one two", 0xFF])
def test_byte_tokens_wait_for_the_end_of_their_run(inst_tokenizer: Any, values: list[int]) -> None:
    prompt = Prompt(inst_tokenizer)
    tokens = [f"<0x{value:02X}>" for value in values]
    ids = prompt.tokenizer.convert_tokens_to_ids(tokens)
    check_stream(prompt, [*ids, *prompt.target_ids("Lima")])


def test_an_answer_that_the_tokenizer_changes_is_shown_again() -> None:
    """Some tokenizers remove characters when they clean up spaces."""
    file = io.StringIO()
    stream = AnswerStream(Console(file=file, color_system=None), TINY)
    for token in TINY.target_ids("one two three"):
        stream.add(torch.tensor([token]))
    stream.end("one-two three")
    assert file.getvalue().splitlines()[-1] == "one-two three"


def test_settled_is_whole_words() -> None:
    assert settled("Lim") == 0
    assert settled("The capital is Lim") == len("The capital is")
    assert settled("東京") == 1
    assert settled("東京。") == 2
    assert settled("東1") == 1
    assert settled("東\u0301") == 0  # a mark changes the character before it
    assert settled("אב") == 0
    assert settled("") == 0


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_answers_and_evidence_wrap_at_any_width(width: int) -> None:
    example = tiny_examples(1)[0]
    words = " ".join(f"Peru{index}" for index in range(40))
    item = Retrieved(Evidence("0", f"{words} {'x' * 200}\n東京\t{'京' * 90}", "table"), 1.5, 0)
    example = replace(example, evidence=[item, *example.evidence])
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    AnswerStream(console, TINY).end(words)
    answer = file.getvalue()
    assert answer.split() == words.split()
    assert width - 8 < len(answer.splitlines()[0]) <= width
    show_passages(console, {"answer": "?"}, example, 1)
    first, *rest = file.getvalue()[len(answer) :].splitlines()
    assert first.startswith("  [table, 1.50 (")
    assert len(rest) > 2
    assert all(line.startswith("    ") for line in rest)
    show_evidence(console, example, "")
    assert all(cell_len(line) <= width for line in file.getvalue().splitlines())


def test_passages_that_name_the_answer_come_first() -> None:
    example = tiny_examples(1)[0]
    file = io.StringIO()
    answer = example.evidence[-1].evidence.text
    show_passages(Console(file=file, width=200), {"answer": answer.upper()}, example, 2)
    first, second = file.getvalue().splitlines()
    assert first.endswith(answer)
    assert second.endswith(example.evidence[0].evidence.text)
    withheld = {"answer": NOT_IN_EVIDENCE, "withheld": answer}
    show_passages(Console(file=file, width=200), withheld, example, 1)
    assert file.getvalue().splitlines()[2].endswith(f"names the withheld answer] {answer}")


def test_passages_show_their_share_and_whether_they_name_the_answer() -> None:
    example = tiny_examples(1)[0]
    passages = [
        Retrieved(Evidence("0", "Lima is old.", "text"), 3.0, 0),
        Retrieved(Evidence("1", "Peru is large.", "table"), 1.0, 0),
        Retrieved(Evidence("2", "Lima again.", "text"), 0.5, 0),
    ]
    file = io.StringIO()
    turn = replace(example, evidence=[*passages[:2], replace(passages[2], from_turn=-1)])
    show_passages(Console(file=file, width=200), {"answer": "lima"}, turn, 9)
    first, second, third = file.getvalue().splitlines()
    assert first == "  [text, 3.00 (75%), new, names the answer] Lima is old."
    assert second.startswith("  [text, 0.50, ")
    assert second.endswith(", names the answer] Lima again.")
    assert third == "  [table, 1.00 (25%), new] Peru is large."


def test_where_no_passage_scores_there_are_no_shares() -> None:
    example = tiny_examples(1)[0]
    passages = [Retrieved(Evidence("0", "Lima is old.", "text"), 0.0, 0)]
    file = io.StringIO()
    turn = replace(example, evidence=passages)
    show_passages(Console(file=file, width=200), {"answer": ""}, turn)
    assert file.getvalue() == "  [text, 0.00, new] Lima is old.\n"


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"confidence": 0.25}, "confidence 25%, probability 61%"),
        (
            {"confidence": 0.01, "withheld": "Lima"},
            "confidence 1%, probability 61%; withheld: Lima",
        ),
        ({"confidence": None, "withheld": ""}, "probability 61%; withheld: (no answer)"),
        (
            {"confidence": 0.5, "withheld": "Lima", "evidence": [{"score": 0.0}]},
            "confidence 50%, probability 61%; withheld, as no passage matches the question: Lima",
        ),
    ],
)
def test_a_calibrated_probability_comes_first(more: dict[str, Any], shown: str) -> None:
    file = io.StringIO()
    record = {"logprob": -0.5, "evidence": [{"score": 0.0}, {"score": 1.0}]} | more
    show_probability(Console(file=file, width=80), record)
    assert file.getvalue() == f"  {shown}\n"


@pytest.mark.parametrize(("logprob", "shown"), [(-0.5, "61%"), (-9.0, "less than 1%")])
def test_every_answer_has_its_probability(logprob: float, shown: str) -> None:
    example, file = tiny_examples(1)[0], io.StringIO()
    record = {"question": "Where?", "answer": "Lima", "logprob": logprob}
    show_answer(Console(file=file, width=80), TINY, record, example)
    first, *rest = file.getvalue().split("  [")
    assert first.splitlines() == ["> Where?", "Lima", f"  probability {shown}"]
    assert len(rest) == 3 < len(example.evidence)


def test_numbers_in_what_is_said_have_no_colours() -> None:
    """Nor have names and paths, which rich would highlight."""
    example, file = tiny_examples(1)[0], io.StringIO()
    console = Console(file=file, width=200, force_terminal=True, color_system="standard")
    passages = (ExplainedPassage("0", "text", "said", 1.0, 0, "new", 0.5, None, ()),) * 11
    edges = (PassageEdge(0, 1, "Q0", "2019", 0.5, 0.5),)
    turn = ExplainedTurn("0", 0, "?", "Lima", (), -0.5, passages, edges, ())
    show_question(console, "In 2019?")
    show_probability(console, {"logprob": -0.5})
    show_folded(console, "In 2019.")
    show_evidence(console, replace(example, evidence=[]), "")
    show_evidence(console, example, "2019")
    show_reasons(console, turn)
    show_reasons(console, replace(turn, passages=()))
    show_table(console, ("a", "b"), [("Lima", "In Lima")], "lima")
    AnswerStream(console, TINY).end("In 2019")
    codes = set(re.findall(r"\x1b\[[\d;]*m", file.getvalue()))
    assert codes == {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m"}  # bold, dim, green
    plain = [line for line in file.getvalue().splitlines() if "\x1b" not in line]
    assert "  In 2019." in plain
    assert f"0 of {len(example.evidence)} passages with '2019'" in plain
    assert "1 more passage: 50% together" in plain
    assert "No evidence was given." in plain
    assert "Lima  In \x1b[1mLima\x1b[0m" in file.getvalue()


def test_reasons_are_listed_by_share_and_what_is_left_is_summed_up() -> None:
    passages = [
        ExplainedPassage(str(i), "text", f"said {i}", 1.0, 0, "new", (i + 1) / 78, None, ())
        for i in range(12)
    ]
    edges = [PassageEdge(i, i + 1, f"Q{i}", f"e{i}", (i + 1) / 90, 0.5) for i in range(12)]
    edges.append(PassageEdge(3, 7, "Q2", "e2", 12 / 90, 0.5))
    turn = ExplainedTurn("0", 0, "?", "Lima", (), -0.5, tuple(passages), tuple(edges), ())
    file = io.StringIO()
    show_reasons(Console(file=file, width=60, color_system=None), turn)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "The model gave its answer a probability of 61%.",
        "    share  source  origin  evidence",
        *(f"{i + 1:>2}  {(i + 1) / 78:>5.0%}  text    new     said {i}" for i in range(11, 1, -1)),
        "2 more passages: 4% together",
        "Linked by",
        "  17% e2: passages 3, 4, 8",
        *(f"  {(i + 1) / 90:.0%} e{i}: passages {i + 1}, {i + 2}" for i in range(11, 2, -1)),
        "  3% 2 more entities",
    ]
