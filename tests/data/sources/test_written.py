"""Conversations over documents that were written with questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.written import main
from turngraph.data.types import NOT_IN_EVIDENCE


def document(number: int, **changed: Any) -> str:
    """A line with a document, whose texts differ."""
    text = f"# Minutes {number}\n\nInes Roth took the minutes.\n\nThe hall costs {number}40 euros."
    talk = [{"q": "Who took them?", "a": "Ines Roth"}, {"q": "Her age?", "a": None}]
    price = [{"q": "What does the hall cost?", "a": f"{number}40 euros"}]
    found = {"id": f"w{number}", "file": "minutes.md", "text": text, "conversations": [talk, price]}
    return json.dumps(found | changed)


def test_documents_become_passages_and_their_questions_conversations(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text("\n".join(map(document, range(1, 11))) + "\n", encoding="utf-8")
    main(["--input", str(path), "--output", str(tmp_path), "--tune", "0.2"])
    train, tune = (read_conversations(tmp_path / f"{name}.jsonl") for name in ("train", "tune"))
    assert (len(train), len(tune)) == (16, 4)
    own = {one.id.partition("-")[0] for one in train}
    assert own.isdisjoint({one.id.partition("-")[0] for one in tune})
    for one in (*train, *tune):
        texts = [passage.text for passage in one.evidence]
        assert len({passage.id for passage in one.evidence}) == len(texts) > 3  # others', too
        labels = [turn.answers[0].label for turn in one.turns]
        if one.id.endswith("-0"):
            assert labels == ["Ines Roth", NOT_IN_EVIDENCE]
        else:
            number = one.id[1:].partition("-")[0]
            assert labels == [f"{number}40 euros"]
        assert any(labels[0] in text for text in texts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: must have id, file, text and conversations"),
        (
            document(2, conversations=[[{"q": "Who?"}]]),
            "line 2: must have id, file, text and conversations",
        ),
        (document(2, file="a.xyz"), "line 2, field file: a.xyz ends in none of"),
        (
            document(2, conversations=[[{"q": "Who?", "a": "Otto"}]]),
            "line 2: the text has no 'Otto', the answer of 'Who\\?'",
        ),
    ],
)
def test_what_is_no_document_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text(f"{document(1)}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        main(["--input", str(path), "--output", str(tmp_path)])
