"""The reader that comes with the package: its files, and what a user without a checkpoint gets."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import turngraph
from turngraph import infer
from turngraph.configs.shipped import READER, READER_FOLDER, find_checkpoint_folder
from turngraph.data.json_fields import iter_lines
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.confidence import Calibration
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Evidence, Turn
from turngraph.inference.calibrated import FROM_MEMORY, THRESHOLD
from turngraph.model.checkpoint import CARD, METRICS, read_checkpoint

TEXT = """# Harbour rowing club

The club was founded in 1987 by Ingrid Solberg. Its boathouse stands on Quay Street.
The yearly fee is 120 euros. Training is on Tuesdays.
"""


def test_its_files_are_whole_and_small() -> None:
    checkpoint = read_checkpoint(READER_FOLDER)
    size = sum(path.stat().st_size for path in READER_FOLDER.rglob("*") if path.is_file())
    assert size < 12 * 2**20
    found = checkpoint.metrics
    for metrics in (found, found[FROM_MEMORY]):
        assert 0 < metrics[THRESHOLD] < 1
        assert Calibration.from_json(metrics["confidence"], METRICS) is not None
    card = (READER_FOLDER / CARD).read_text(encoding="utf-8")
    for words in ("## Trained on", "CC BY-SA 4.0", "## What it cannot do"):
        assert words in card


def test_its_name_is_a_checkpoints_where_no_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint_folder(READER) == READER_FOLDER
    assert find_checkpoint_folder("other") == Path("other")
    (tmp_path / READER).mkdir()
    assert find_checkpoint_folder(READER) == Path(READER)


@pytest.fixture(scope="module")
def qa() -> turngraph.QA:
    return turngraph.load(device="cpu")


def test_answers_from_a_memory_have_a_confidence_of_their_own(qa: turngraph.QA) -> None:
    found = qa.checkpoint.metrics
    for confidence in (qa.chat(["Ada lives in Rome."]).confidence, qa.reader().confidence):
        assert confidence is not None
        assert confidence.of_memory is not None
        both = confidence, confidence.of_memory
        parts = found, found[FROM_MEMORY]
        assert [one.abstain_below for one in both] == [part[THRESHOLD] for part in parts]
        biases = [part["confidence"]["bias"] for part in parts]
        assert [one.calibration.bias for one in both] == biases
    of_question = qa.reader(abstain_below=0.1).confidence
    assert of_question is not None
    assert of_question.of_memory is not None
    assert (of_question.abstain_below, of_question.of_memory.abstain_below) == (0.1, 0.1)


def test_it_answers_from_a_document_and_warns_of_nothing(
    qa: turngraph.QA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    (tmp_path / "club.md").write_text(TEXT, encoding="utf-8")
    answer = qa.chat(evidence=[tmp_path]).ask("When was the club founded?")
    assert answer.text == "1987"
    assert answer.confidence is not None
    said = [*caplog.get_records("setup"), *caplog.records]
    assert [one.getMessage() for one in said if one.levelno >= logging.WARNING] == []
    assert [str(one.message) for one in recwarn] == []
    assert [item for item in answer.evidence if "1987" in item.evidence.text]
    for question, text in (
        ("Where is the boathouse?", "Quay Street"),
        ("On which day is training?", "Tuesdays"),
        ("What is the phone number?", NOT_IN_EVIDENCE),
    ):
        assert qa.chat(evidence=[tmp_path]).ask(question).text == text


def test_without_evidence_it_says_so(qa: turngraph.QA) -> None:
    assert qa.chat().ask("Who founded the club?").text == NOT_IN_EVIDENCE


def test_answer_takes_it_without_a_checkpoint_and_withholds(tmp_path: Path) -> None:
    pool = tuple(Evidence(str(i), text, "text") for i, text in enumerate(TEXT.splitlines()) if text)
    turns = (Turn("0", "When was the club founded?", (Answer("1987"),)),)
    write_conversations(tmp_path / "input.jsonl", [Conversation("c", "", turns, pool)])
    given = {"--input": tmp_path / "input.jsonl", "--output": tmp_path / "output.jsonl"}
    infer.main(["answer", "--abstain_below=1", *(f"{name}={path}" for name, path in given.items())])
    [record] = [record for _, record in iter_lines(tmp_path / "output.jsonl")]
    assert (record["answer"], record["withheld"]) == (NOT_IN_EVIDENCE, "1987")
