"""The rules read every committed text and question as ``rule_readings.json`` holds it.

A change of the rules that is meant changes readings elsewhere, too: the failure names them, and the
module ``rule_readings`` writes the file again.
"""

from __future__ import annotations

import json

from turngraph.tests.data.memory_graph.rule_readings import (
    READINGS,
    changed,
    question_readings,
    text_readings,
)


def test_texts_are_read_as_before() -> None:
    assert changed(text_readings(), json.loads(READINGS.read_text("utf-8"))) == []


def test_questions_are_answered_as_before() -> None:
    assert changed(question_readings(), json.loads(READINGS.read_text("utf-8"))) == []
