"""infer.py answer through stops, kills, bad lines and too little room."""

from __future__ import annotations

import json
import math
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import turngraph.inference.answer
import turngraph.inference.answer_batches
import turngraph.inference.load
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import BadLine, dump, write_conversations
from turngraph.data.prediction_records import bad_line_records
from turngraph.data.scoring.score import score_predictions
from turngraph.infer import main
from turngraph.inference.answer import EXIT_ERRORS
from turngraph.inference.answer_batches import (
    Batching,
    answer_batch,
    answer_batches,
    answer_together,
    prompt_length,
    surer,
)
from turngraph.inference.answer_job import AnswerJob
from turngraph.inference.output import AnswerFile
from turngraph.model.evidence_model import EvidenceModel
from turngraph.tests.processes import Command
from turngraph.tests.tiny import tiny_builder, tiny_conversation, tiny_examples, tiny_model
from turngraph.tests.waiting import wait_until

Json = dict[str, Any]
HISTORIES = ("gold", "predicted")


def command_in(folder: Path, checkpoint: str) -> list[str]:
    """``infer.py answer`` for 18 questions in batches of two."""
    write_conversations(folder / "in.jsonl", [tiny_conversation(n) for n in range(6)])
    arguments = ["answer", "--checkpoint", checkpoint, "--input", folder / "in.jsonl"]
    arguments += ["--output", folder / "out.jsonl", "--batch_size", 2, "--max_new_tokens", 5]
    return list(map(str, [*arguments, "--device", "cpu"]))


@pytest.fixture
def command(graph_checkpoint: str, tmp_path: Path) -> list[str]:
    return command_in(tmp_path, graph_checkpoint)


@pytest.fixture(scope="module")
def undisturbed(
    graph_checkpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Json]]:
    """What the command writes if nothing happens to it, by history."""
    found = {}
    for history in HISTORIES:
        folder = tmp_path_factory.mktemp("undisturbed")
        main([*command_in(folder, graph_checkpoint), "--history", history])
        found[history] = timeless(folder / "out.jsonl")
    return found


def records(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def timeless(path: Path) -> list[Json]:
    """All that two runs of the same must agree in, to the last bit."""
    kept = records(path)
    for record in kept:
        record.pop("milliseconds", None)
    return kept


def one_run(command: list[str], output: Path, *options: object) -> list[Json]:
    """What an undisturbed run writes."""
    main([*command, "--output", str(output), *map(str, options)])
    return timeless(output)


def break_after(monkeypatch: pytest.MonkeyPatch, num_batches: int, error: Exception) -> None:
    """Let no more than some batches be answered."""
    works, left = turngraph.inference.answer_batches.answer_batch, iter(range(num_batches))

    def answer_batch(*arguments: Any, **choice: Any) -> Any:
        if next(left, None) is None:
            raise error
        return works(*arguments, **choice)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", answer_batch)


@pytest.mark.parametrize(("history", "num_batches"), [("gold", 0), ("gold", 4), ("predicted", 8)])
def test_a_run_that_breaks_off_goes_on_to_the_same_file(
    history: str,
    num_batches: int,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, list[Json]],
) -> None:
    command += ["--history", history]
    whole = undisturbed[history]
    with monkeypatch.context() as patch:
        break_after(patch, num_batches, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            main(command)
    before = timeless(tmp_path / "out.jsonl")
    assert before == whole[: len(before)]
    calls: list[int] = []
    works = turngraph.inference.answer_batches.answer_batch

    def count(model: Any, prompt: Any, examples: Any, new: int, **choice: Any) -> Any:
        calls.append(len(examples))
        return works(model, prompt, examples, new, **choice)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", count)
    main(command)
    assert timeless(tmp_path / "out.jsonl") == whole
    assert sum(calls) == len(whole) - 2 * num_batches  # no answer was lost
    names = {path.name for path in tmp_path.iterdir()} - {"in.jsonl"}
    assert names == {"out.jsonl", "out.jsonl.run.json"}


def test_lines_are_written_in_order_as_soon_as_they_can_be(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, works = [], turngraph.inference.answer_batches.answer_batch

    def answer_batch(*arguments: Any, **choice: Any) -> Any:
        seen.append(timeless(tmp_path / "out.jsonl"))
        return works(*arguments, **choice)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", answer_batch)
    released = MagicMock()
    monkeypatch.setattr(turngraph.inference.answer_batches, "release_freed_memory", released)
    main(command)
    assert 0 < released.call_count < len(seen)
    whole = timeless(tmp_path / "out.jsonl")
    assert [len(lines) for lines in seen] == sorted(len(lines) for lines in seen)
    assert all(lines == whole[: len(lines)] for lines in seen)
    assert len(seen[1]) >= 1
    assert len({len(lines) for lines in seen}) > 4


def test_the_journal_may_be_cut_anywhere(tmp_path: Path) -> None:
    lines = {i: {"answer": "é" * i, "milliseconds": i / 7} for i in (2, 0, 1, 4, 3)}

    def write(numbers: list[int]) -> None:
        with AnswerFile(tmp_path / "out", {"a": 1}, len(lines), False) as file:
            file.begin()
            for number in numbers:
                file.add({number: lines[number]})
            if file.num_written == len(lines):
                file.finish()

    write([2, 0, 1])
    journal = (tmp_path / "out.unfinished").read_bytes()
    for length in range(len(journal) + 1):
        (tmp_path / "out.unfinished").write_bytes(journal[:length])
        write([2, 0, 1, 4])
        write([2, 0, 1, 4, 3])
        assert records(tmp_path / "out") == [lines[i] for i in range(5)]
        assert not (tmp_path / "out.unfinished").exists()
        (tmp_path / "out").unlink()


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    with (
        AnswerFile(tmp_path / "out", {}, 1, False),
        pytest.raises(ValueError, match="another run is writing it"),
        AnswerFile(tmp_path / "out", {}, 1, False),
    ):
        pass


def test_answers_of_other_settings_are_kept_apart(command: list[str], tmp_path: Path) -> None:
    main(command)
    whole = (tmp_path / "out.jsonl").read_bytes()
    with pytest.raises(
        ValueError, match=r"out.jsonl: begun with history 'gold', now 'predicted' given"
    ):
        main([*command, "--history", "predicted"])
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write("\n")
    with pytest.raises(ValueError, match=r"begun with input .*--fresh"):
        main(command)
    assert (tmp_path / "out.jsonl").read_bytes() == whole
    main([*command, "--history", "predicted", "--fresh"])
    assert (tmp_path / "out.jsonl").read_bytes() != whole


def test_a_file_from_elsewhere_is_not_overwritten(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("mine\n")
    with pytest.raises(ValueError, match="exists already"):
        main(command)
    assert (tmp_path / "out.jsonl").read_text() == "mine\n"


def test_what_is_whole_is_not_answered_again(command: list[str], tmp_path: Path) -> None:
    main(command)
    whole = (tmp_path / "out.jsonl").read_bytes()  # with the time that each answer took
    main([*command, "--keep_going"])
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_what_is_whole_may_hold_any_character_that_ends_a_line(
    command: list[str], tmp_path: Path
) -> None:
    conversation = tiny_conversation(0)
    odd = replace(conversation.turns[0], question="Where\u2028is\u2029it,\x85then\x0b?")
    write_conversations(tmp_path / "in.jsonl", [replace(conversation, turns=(odd,))])
    main(command)
    main(command)


def test_a_stop_leaves_a_file_that_score_refuses(
    command: list[str], tmp_path: Path, undisturbed: dict[str, list[Json]]
) -> None:
    for _ in range(2):
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--max_minutes", "1e-9"])
        assert stopped.value.code == EXIT_GO_ON
        with pytest.raises(ValueError, match="not complete"):
            score_predictions(tmp_path / "out.jsonl")
    main(command)
    assert timeless(tmp_path / "out.jsonl") == undisturbed["gold"]


BAD_LINES = (
    '{"id": "broken", "turns": [',
    '{"id": "c1", "turns": [{"question": "Who?", "answers": [{"label": "Ann"}]}, {"id": "x"}]}',
    '{"pool": "p", "evidence": [{"source": "text"}]}',
    '{"id": "poor", "pool": "p", "turns": [{"question": "Why?"}]}',
)


def with_bad_lines(path: Path) -> None:
    good = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([BAD_LINES[0], good[0], *BAD_LINES[1:3], *good[1:], BAD_LINES[3]]))


@pytest.mark.parametrize("history", HISTORIES)
def test_bad_lines_become_error_records_in_their_places(
    history: str,
    command: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    undisturbed: dict[str, list[Json]],
) -> None:
    command += ["--history", history]
    expected = undisturbed[history]
    with_bad_lines(tmp_path / "in.jsonl")
    with pytest.raises(
        ValueError, match=r"in\.jsonl, line 1: each line must be a whole JSON object"
    ):
        main(command)
    assert not (tmp_path / "out.jsonl").exists()
    caplog.set_level("INFO")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--keep_going"])
    assert ended.value.code == EXIT_ERRORS
    assert caplog.messages[-1].endswith("out.jsonl: 18 answers, 5 errors")
    found = timeless(tmp_path / "out.jsonl")
    assert [i for i, record in enumerate(found) if "error" in record] == [0, 4, 5, 6, 22]
    assert [record["answer"] for record in found if "error" not in record] == [
        record["answer"] for record in expected
    ]
    assert found[0]["line"] == 1
    assert "each line must be a whole JSON object" in found[0]["error"]
    for record, turn in zip(found[4:6], ("0", "x"), strict=True):
        assert (record["conversation"], record["turn"], record["line"]) == ("c1#3", turn, 3)
        assert record["error"].endswith("line 3, field turns[1].question: missing")
    assert found[4]["gold"] == [{"label": "Ann"}]
    assert found[6]["error"].endswith("line 4, field evidence[0].text: missing")
    assert "no pool 'p' above this line" in found[22]["error"]
    scores = score_predictions(tmp_path / "out.jsonl")
    assert len(scores.predictions) == 19  # what is not known to be a question is not counted
    assert sum(one.error is not None for one in scores.predictions) == 1
    with pytest.raises(SystemExit) as ended:  # whole, and still with errors
        main([*command, "--keep_going"])
    assert ended.value.code == EXIT_ERRORS


def test_what_is_told_of_a_bad_line_can_be_written_and_scored(tmp_path: Path) -> None:
    line = (
        '{"id": "c\\ud83d", "turns": [{"id": "1", "question": "half \\ud83d", "answers": '
        '[{"label": "\\ud83d", "id": "\\ud83d"}]}, {"id": "1"}]}'
    )
    bad = BadLine(0, {"line": 7, "error": "field turns[1].question: missing"}, json.loads(line))
    found = bad_line_records(bad, {"c?"})
    assert [(r["conversation"], r["turn"]) for r in found] == [("c?#7", "1"), ("c?#7", "1#2")]
    assert found[0]["question"] == "half ?"
    assert found[0]["gold"] == [{"label": "?", "id": "?"}]
    assert all(dump(record).encode() for record in found)


@pytest.mark.parametrize("history", HISTORIES)
def test_an_input_of_bad_lines_only(history: str, command: list[str], tmp_path: Path) -> None:
    """It ends as one with some bad lines: every line is an error, in its place."""
    (tmp_path / "in.jsonl").write_text('{"id": 1\n{"id": "a", "turns": [{"id": "t"}]}\n[]\n')
    with pytest.raises(SystemExit) as ended:
        main([*command, "--history", history, "--keep_going"])
    assert ended.value.code == EXIT_ERRORS
    assert [record["line"] for record in records(tmp_path / "out.jsonl")] == [1, 2, 3]
    with pytest.raises(ValueError, match="no gold answer in it"):
        score_predictions(tmp_path / "out.jsonl")


NAMES = st.sampled_from(["id", "turns", "question", "answers", "label", "domain", "source"])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**30),
    st.floats(),
    st.sampled_from(["", " ", "a", "\ud83d", "text"]),
)
ANYTHING = st.recursive(
    ODD, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner))
)
ANSWER = st.fixed_dictionaries({"label": st.one_of(st.just("Ann"), ODD)}, optional={"id": ODD})
TURN = st.fixed_dictionaries(
    {"answers": st.lists(st.one_of(ANSWER, ANYTHING), max_size=3)},
    optional={"id": ODD, "question": ODD, "source": ODD},
)
LINE = st.fixed_dictionaries({"turns": st.lists(TURN, max_size=3)}, optional={"id": ODD})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(LINE, ANYTHING), min_size=1, max_size=4))
def test_score_reads_what_answer_writes_of_any_line(found: list[Any]) -> None:
    """Whatever cannot be read, its lines are well formed and no question is there twice."""
    taken = {"a", "line 1"}
    lines = []
    for number, record in enumerate(found, 1):
        known = record if isinstance(record, dict) else None
        bad = BadLine(0, {"line": number, "error": "bad"}, known)
        lines += bad_line_records(bad, taken)
    gold = {"label": "b", "id": "B"}
    lines.append({"conversation": "a", "turn": "0", "error": "none", "gold": [gold]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.jsonl")
        path.write_text("".join(f"{dump(record)}\n" for record in lines), encoding="utf-8")
        scores = score_predictions(path)
    assert len(scores.predictions) == sum("gold" in record for record in lines)
    assert not scores.values[:, :2].any()


@pytest.mark.parametrize("history", HISTORIES)
def test_a_prompt_that_is_too_long_is_named(
    history: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, list[Json]],
) -> None:
    command += ["--history", history]
    lengths = [record["num_tokens"] for record in undisturbed[history]]
    limit = sorted(lengths)[-3] + 5
    monkeypatch.setattr(EvidenceModel, "max_tokens", limit)
    wanted = f"conversation c., turn .: a prompt of .* the model has {limit} positions"
    with pytest.raises(ValueError, match=wanted):
        main(command)
    with monkeypatch.context() as patch:
        patch.setattr(turngraph.inference.options, "MAX_QUESTION", 3)
        with pytest.raises(ValueError, match=r"turn .: a question of .. characters, at most 3"):
            main(command)
    with pytest.raises(SystemExit):
        main([*command, "--keep_going"])
    errors = [record for record in records(tmp_path / "out.jsonl") if "error" in record]
    assert 1 <= len(errors) <= 3
    assert {"conversation", "turn", "question", "gold", "source"} < errors[0].keys()
    scores = score_predictions(tmp_path / "out.jsonl")
    wrong = [number for number, one in enumerate(scores.predictions) if one.error]
    assert len(wrong) == len(errors)
    assert not scores.values[wrong, 0].any()


def test_out_of_memory(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, list[Json]],
) -> None:
    expected = undisturbed["gold"]
    works = turngraph.inference.answer_batches.answer_batch

    def answer_batch(model: Any, prompt: Any, examples: Any, new: int, **choice: Any) -> Any:
        keys = [example.key for example in examples]
        if ("c2", "1") in keys or (len(keys) > 1 and ("c4", "0") in keys):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return works(model, prompt, examples, new, **choice)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", answer_batch)
    with pytest.raises(ValueError, match=r"out of memory: a batch of 2 x \d+ tokens.*batch_tokens"):
        main(command)
    with pytest.raises(SystemExit):
        main([*command, "--keep_going"])
    found = timeless(tmp_path / "out.jsonl")
    assert [r["turn"] for r in found if "error" in r] == ["1"]
    for record, other in zip(found, expected, strict=True):
        assert "error" in record or record["answer"] == other["answer"]
    # the processes of a sharded model wait for each other: none answers one by one
    monkeypatch.setattr(turngraph.inference.answer_batches, "is_sharded", lambda _: True)
    with pytest.raises(ValueError, match=r"a batch of 2 x \d+ tokens.*batch_tokens"):
        main([*command, "--keep_going", "--fresh"])


def test_a_turn_that_failed_is_an_empty_answer_to_those_after_it(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = turngraph.inference.answer_batches.answer_batch

    def answer_batch(model: Any, prompt: Any, examples: Any, new: int, **choice: Any) -> Any:
        if not fails:
            found = works(model, prompt, examples, new, **choice)
            return [r | {"answer": "" if r["turn"] == "0" else r["answer"]} for r in found]
        if any(example.turn == 0 for example in examples):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return works(model, prompt, examples, new, **choice)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batch", answer_batch)
    command += ["--history", "predicted", "--keep_going"]
    fails = False
    expected = one_run(command, tmp_path / "empty.jsonl")
    fails = True
    with pytest.raises(SystemExit):
        one_run(command, tmp_path / "failed.jsonl")
    found = timeless(tmp_path / "failed.jsonl")
    assert ["error" in record for record in found] == [r["turn"] == "0" for r in expected]
    assert [r for r in found if r["turn"] != "0"] == [r for r in expected if r["turn"] != "0"]


def test_weights_that_overflow_are_told_without_the_question(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_checkpoint = turngraph.inference.load.load_checkpoint

    def load_large(*given: Any) -> EvidenceModel:
        model = load_checkpoint(*given)
        for weights in model.parameters():
            weights.data.fill_(1e20)
        return model

    monkeypatch.setattr(turngraph.inference.load, "load_checkpoint", load_large)
    with pytest.raises(ValueError, match=r"turn 0: the model's answer has no finite") as caught:
        main(command)
    assert tiny_conversation(0).turns[0].question not in str(caught.value)


@pytest.mark.parametrize(
    ("with_dialogue", "alone", "is_alone"),
    [(0.3, 0.4, True), (0.3, 0.39, False), (0.5, 0.5, False), (0.5, 0.51, True), (0.5, 0.3, False)],
)
def test_the_surer_of_two_answers_is_chosen(
    with_dialogue: float, alone: float, is_alone: bool
) -> None:
    one = {"answer": "a", "milliseconds": 1.111, "confidence": with_dialogue, "logprob": -1.0}
    other = {"answer": "b", "milliseconds": 2.222, "confidence": alone, "logprob": -1.0}
    expected = other | {"alone": True} if is_alone else one
    assert surer(one, other) == expected | {"milliseconds": 3.33}
    if (with_dialogue, alone) != (0.3, 0.4):  # the logarithm would round
        one |= {"confidence": None, "logprob": math.log(with_dialogue)}
        other |= {"confidence": None, "logprob": math.log(alone)}
        assert ("alone" in surer(one, other)) == is_alone


@pytest.mark.parametrize(
    ("given", "tokens", "size"),
    [
        ({}, 8192, None),
        ({"batch_size": 2}, None, 2),
        ({"batch_tokens": 99}, 99, None),
        ({"batch_size": 2, "batch_tokens": 99}, 99, 2),
    ],
)
def test_answers_together_have_a_limit_and_are_in_order(
    given: dict[str, Any], tokens: int | None, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def answer_batches(_: object, __: object, examples: object, batching: Batching) -> Any:
        seen.append(batching)
        yield {1: {"answer": "b"}, 2: {"answer": "c"}}
        yield {0: {"answer": "a"}}

    @contextmanager
    def progress(*given: object, shown: bool) -> Iterator[Any]:
        seen.append((*given, shown))
        yield SimpleNamespace(update=seen.append)

    monkeypatch.setattr(turngraph.inference.answer_batches, "answer_batches", answer_batches)
    monkeypatch.setattr(turngraph.inference.answer_batches, "progress", progress)
    together = partial(answer_together, tiny_model(), tiny_builder().prompt, tiny_examples(3), 7)
    after = partial(seen.append, "after")
    records = together(**given, desc="reading", after_batch=after)
    assert [record["answer"] for record in records] == ["a", "b", "c"]
    bar = (3, "reading", "questions", True)
    assert seen == [bar, Batching(7, tokens, size), 2, "after", 1, "after"]
    seen.clear()
    together(**given)
    assert seen[0] == (3, "", "questions", False)


def test_the_time_of_a_batch_is_shared_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=iter([10.0, 10.5]).__next__)
    monkeypatch.setattr(turngraph.inference.answer_batches, "time", clock)
    records = answer_batch(tiny_model(), tiny_builder().prompt, tiny_examples(2), 1)
    assert [record["milliseconds"] for record in records] == [250.0, 250.0]


@pytest.mark.parametrize(
    ("ray", "device", "cpu"),
    [(None, "cpu", True), (None, "cuda", False), ("local", "cuda", True)],
)
def test_processes_that_compute_on_no_gpu_take_none(
    ray: str | None, device: str, cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(cpu: bool) -> None:
        raise InterruptedError(str(cpu))

    monkeypatch.setattr(turngraph.inference.answer, "PartialState", begin)
    monkeypatch.setattr(turngraph.inference.answer, "device_of", lambda given: given)
    job = SimpleNamespace(ray=ray, loading=SimpleNamespace(device=device))
    with pytest.raises(InterruptedError, match=f"^{cpu}$"):
        turngraph.inference.answer.answer_file(cast("AnswerJob", job))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_process_without_a_batch_waits_or_repeats_the_first(
    sharded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, asked = turngraph.inference.answer_batches, list[list[int]]()
    monkeypatch.setattr(module, "is_sharded", lambda _: sharded)
    monkeypatch.setattr(module, "gather_object", lambda mine: mine)
    examples = tiny_examples(4)
    numbers = {id(example): number for number, example in enumerate(examples)}

    def answer_safely(_: object, __: object, mine: list[Any], *___: object) -> list[Json]:
        asked.append([numbers[id(example)] for example in mine])
        return [{} for _ in mine]

    monkeypatch.setattr(module, "answer_safely", answer_safely)
    model, prompt = tiny_model(), tiny_builder().prompt
    first = Batching(3, None, 1).pack([prompt_length(example) for example in examples])
    for rank in range(3):
        state = SimpleNamespace(process_index=rank, num_processes=3)
        monkeypatch.setattr(module, "PartialState", lambda state=state: state)
        list(answer_batches(model, prompt, examples, Batching(3, None, 1)))
    idle = first[3] if sharded else []
    assert asked == [first[0], first[3], first[1], idle, first[2], idle]


def test_what_is_known_is_not_told_again() -> None:
    model, builder = tiny_model(), tiny_builder()
    examples = tiny_examples(3)
    model.causal_lm.config.max_position_embeddings = prompt_length(examples[1]) + 3
    fits = [prompt_length(one) <= prompt_length(examples[1]) for one in examples]
    batching = Batching(3, None, None, keep_going=True)

    def told(*known: int) -> list[int]:
        batches = answer_batches(model, builder.prompt, examples, batching, known)
        return sorted(index for batch in batches for index in batch)

    assert set(fits) == {True, False}
    assert told() == [0, 1, 2]
    assert told(fits.index(True), fits.index(False)) == [
        index for index in range(3) if index not in (fits.index(True), fits.index(False))
    ]


@given(
    st.lists(st.integers(1, 300), max_size=40),
    st.one_of(st.none(), st.integers(1, 2000)),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_batches_keep_to_the_budget(
    lengths: list[int], batch_tokens: int | None, batch_size: int | None
) -> None:
    batches = Batching(10, batch_tokens, batch_size).pack(lengths)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert [min(batch) for batch in batches] == sorted(min(batch) for batch in batches)
    for batch in batches:
        tokens = len(batch) * (max(lengths[number] for number in batch) + 10)
        assert batch_tokens is None or tokens <= batch_tokens or len(batch) == 1
        assert batch_size is None or len(batch) <= batch_size
        assert lengths[batch[0]] == max(lengths[number] for number in batch)


def kill_at_random(command: list[str], folder: Path, num_kills: int) -> None:
    """Start a command, kill it at a random moment, again and again; each kill hits a run."""
    size = (folder / "whole.jsonl").stat().st_size
    rng, output = random.Random(num_kills), folder / "out.jsonl"
    journal = folder / "out.jsonl.unfinished"

    def far(share: float) -> bool:
        if output.exists():
            return True
        return journal.exists() and journal.stat().st_size >= share * size

    for share in sorted(0.9 * rng.random() for _ in range(num_kills)):
        code = 0
        while code == 0:  # one that ended before the kill begins again
            process = Command("infer.py", *command)
            wait_until(lambda share=share: far(share), pause=0.001)
            process.send_signal(signal.SIGKILL)
            _, err = process.communicate()
            if (code := process.returncode) == 0:
                output.unlink()
        assert code == -signal.SIGKILL, err


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES)
def test_a_killed_run_goes_on_to_the_same_file(
    history: str, command: list[str], tmp_path: Path
) -> None:
    write_conversations(tmp_path / "in.jsonl", [tiny_conversation(n, f"c{n}") for n in range(12)])
    command += ["--history", history, "--max_new_tokens", "24"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the last bits depend on it, and a fork has one thread
    try:
        whole = one_run(command, tmp_path / "whole.jsonl")
        kill_at_random(command, tmp_path, num_kills=12)
        main(command)
    finally:
        torch.set_num_threads(threads)
    assert timeless(tmp_path / "out.jsonl") == whole
