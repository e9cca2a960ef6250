"""LoCoMo's conversations as passages, and its questions as conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.locomo import main
from turngraph.data.types import NOT_IN_EVIDENCE

SAID = {
    "speaker_a": "Ola",
    "speaker_b": "Per",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ola", "dia_id": "D1:1", "text": "I bought a lathe!"},
        {"speaker": "Per", "dia_id": "D1:2", "text": "Look.", "blip_caption": "a photo of a bowl"},
    ],
    "session_2_date_time": "9:00 am on 2 June, 2023",
    "session_2": [{"speaker": "Per", "dia_id": "D2:1", "text": "I broke my wrist."}],
}
QUESTIONS = [
    {"question": "What did Ola buy?", "answer": "a lathe", "category": 4, "evidence": ["D1:1"]},
    {"question": "In which year?", "answer": 2023, "category": 2},
    {"question": "What did Per buy?", "adversarial_answer": "a lathe", "category": 5},
]


def write(tmp_path: Path, **changes: Any) -> list[str]:
    record = {"sample_id": "conv-1", "conversation": SAID, "qa": QUESTIONS} | changes
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([record]))
    return ["--input", str(path), "--output", str(tmp_path / "test.jsonl")]


def test_messages_are_passages_and_each_question_is_a_conversation(tmp_path: Path) -> None:
    main(write(tmp_path))
    assert len((tmp_path / "test.jsonl").read_text().splitlines()) == 1 + len(QUESTIONS)
    found = read_conversations(tmp_path / "test.jsonl")
    assert [(e.id, e.text) for e in found[0].evidence] == [
        ("D1:1", "Ola (1:56 pm on 8 May, 2023): I bought a lathe!"),
        ("D1:2", "Per (1:56 pm on 8 May, 2023): Look. [shares a photo of a bowl]"),
        ("D2:1", "Per (9:00 am on 2 June, 2023): I broke my wrist."),
    ]
    assert [(c.domain, c.turns[0].answers[0].label) for c in found] == [
        ("single-hop", "a lathe"),
        ("temporal", "2023"),
        ("adversarial", NOT_IN_EVIDENCE),
    ]
    assert {c.evidence for c in found} == {found[0].evidence}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qa": [{"question": "Who?", "category": 4}]}, r"field \[0\].qa\[0\].answer: .*missing"),
        (
            {"qa": [QUESTIONS[0] | {"category": 9}]},
            r"field \[0\].qa\[0\].category: must be one of 1, 2",
        ),
        ({"conversation": SAID | {"session_2": [{}]}}, r"conversation.session_2\[0\].text: "),
        ({"qa": []}, "locomo.json: no question in it"),
    ],
)
def test_a_file_of_another_shape_is_told(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        main(write(tmp_path, **changes))
    assert not (tmp_path / "test.jsonl").exists()
