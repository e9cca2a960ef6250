"""Options of answering, loading and serving: their defaults and their limits."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import pytest

from turngraph import infer
from turngraph.configs.schema import Config, EvidenceConfig, TrainingConfig
from turngraph.configs.user_error import UserError
from turngraph.inference.options import (
    AnswerOptions,
    LoadOptions,
    MemoryOptions,
    too_long,
)
from turngraph.inference.serve.serve_options import MAX_DEADLINE, ServeOptions


def test_a_server_that_is_given_nothing_has_the_limits_of_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[Any]()
    monkeypatch.setattr(
        "turngraph.inference.serve.run_server.serve", lambda *args: given.extend(args)
    )
    infer.main(["serve"])
    _, loading, options, *rest = given
    assert options == ServeOptions()
    assert (options.batch_tokens, options.prefix_tokens) == (16_384, 32_768)
    assert (options.max_batch, options.max_waiting, options.deadline) == (32, 128, 120.0)
    assert loading == LoadOptions()
    assert rest == [None, "127.0.0.1", 8080]


def test_values_at_the_limits_are_taken() -> None:
    least = dict.fromkeys(("batch_tokens", "max_batch", "prefix_tokens", "max_waiting"), 1)
    for share in (0.0, 1.0):
        assert ServeOptions(abstain_below=share, deadline=MAX_DEADLINE, **least).max_batch == 1
    assert MAX_DEADLINE == 365 * 24 * 3600
    assert AnswerOptions(max_new_tokens=1, batch_tokens=1).batch_tokens == 1
    for share in (-0.01, 1.01):
        with pytest.raises(
            UserError, match=f"^--abstain_below: {share} given, must be from 0 to 1"
        ):
            AnswerOptions(abstain_below=share)


def test_numbers_of_the_command_line_begin_at_their_least() -> None:
    assert (infer.whole("0"), infer.positive("1"), infer.weight("0")) == (0, 1, 0.0)
    for take, text in (
        *((infer.whole, "-1"), (infer.whole, "1.5"), (infer.positive, "0")),
        *((infer.weight, text) for text in ("-0.1", "inf", "nan", "x")),
    ):
        with pytest.raises(ArgumentTypeError, match=f"^'{text}' given, must be a "):
            take(text)


@pytest.mark.parametrize(
    "option",
    [["--tenant", "ada"], ["--memory_read_only"], ["--plan_model", "small"], ["--plan_reader"]],
)
def test_options_of_a_memory_need_a_memory(option: list[str]) -> None:
    with pytest.raises(UserError, match=f"^{option[0]} needs --memory$"):
        infer.main(["chat", *option])


def test_a_question_has_4000_characters_at_most() -> None:
    assert too_long("x" * 4000) == ""
    assert too_long("x" * 4001) == "a question of 4,001 characters, at most 4,000 are read"


def test_answers_are_as_long_as_was_asked_else_as_trained_else_48_tokens() -> None:
    never = TrainingConfig(max_steps=0)
    config = Config(training=never)
    assert AnswerOptions().resolved(config).max_new_tokens == 48
    assert AnswerOptions(max_new_tokens=49).resolved(config).max_new_tokens == 49
    assert AnswerOptions().batch_tokens == 8192
    some = Config(evidence=EvidenceConfig(edges="no_entity"), training=never)
    assert AnswerOptions(cut_edges="all").resolved(some).cut_edges == "all"


def test_what_is_not_given_of_retrieval_stays_as_trained() -> None:
    trained = EvidenceConfig(retriever="bm25", corpus="folder")
    assert LoadOptions().applied(trained) == trained
    assert LoadOptions(corpus="other").applied(trained).corpus == "other"
    assert LoadOptions(corpus="other").applied(trained).retriever == "bm25"


def test_options_of_a_memory_need_those_they_belong_to() -> None:
    for lm in ({"plan": "lm"}, {"compute": "lm"}):
        assert MemoryOptions("my.db", plan_model="small", **lm).plan_model == "small"  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--plan_model needs --plan lm or --compute lm"):
        MemoryOptions("my.db", plan="rules", plan_model="small")
    assert MemoryOptions("my.db", plan="rules", plan_reader=True).plan_reader
    for plan in (None, "none"):
        with pytest.raises(UserError, match="--plan_reader needs --plan rules or lm"):
            MemoryOptions("my.db", plan=plan, plan_reader=True)  # type: ignore[arg-type]
