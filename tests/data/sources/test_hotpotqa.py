"""HotpotQA in its two forms: a question about two pages made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations
from turngraph.data.sources.hotpotqa import main, part_of
from turngraph.data.types import Answer, Conversation

ORIGINAL = {
    "_id": "a1",
    "question": "Where was the  singer of Blue Door born?",
    "answer": "Moundou",
    "supporting_facts": [["Blue Door (song)", 0], ["Ann Ray", 0]],
    "context": [
        ["Blue Door (song)", ["Blue Door is a song by Ann Ray.", " It came out in 1996."]],
        ["Ann Ray", ["Ann Ray is a singer from Moundou.", " "]],
    ],
}
LINES = {
    "question_id": "a2",
    "question_text": "Is Blue Door a song?",
    "answers_objects": [{"number": "", "spans": ["yes"]}],
    "contexts": [
        {"title": "Blue Door (song)", "paragraph_text": "Blue Door is a song. It is by Ann Ray."}
    ],
}


def convert(folder: Path, records: list[Any], *options: str) -> list[Conversation]:
    """Write a file of questions, convert it, and read what was written."""
    given, output = folder / "in.json", folder / "out.jsonl"
    is_lines = "question_text" in records[0]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    given.write_text(lines if is_lines else json.dumps(records), encoding="utf-8")
    main(["--input", str(given), "--output", str(output), *options])
    return read_conversations(output)


def test_sentences_are_passages_joined_by_titles(tmp_path: Path) -> None:
    [one] = convert(tmp_path, [ORIGINAL])
    assert (one.id, one.domain) == ("hotpotqa-a1", "hotpotqa")
    [turn] = one.turns
    assert turn.question == "Where was the singer of Blue Door born?"
    assert turn.answers == (Answer("Moundou", "moundou"),)
    texts = {passage.id: passage.text for passage in one.evidence}
    assert texts == {
        "Blue Door (song), 1": "Blue Door (song), Blue Door is a song by Ann Ray.",
        "Blue Door (song), 2": "Blue Door (song), It came out in 1996.",
        "Ann Ray, 1": "Ann Ray, Ann Ray is a singer from Moundou.",
    }
    ids = [{entity.id for entity in passage.entities} for passage in one.evidence]
    assert ids[0] == {"Blue Door (song)", "Ann Ray"}  # a title in another page's sentence
    assert ids[1] == {"Blue Door (song)", "1996"}
    assert ids[2] == {"Ann Ray", "moundou"}


def test_lines_are_read_too_and_yes_is_an_answer(tmp_path: Path) -> None:
    [one] = convert(tmp_path, [LINES])
    assert one.turns[0].answers == (Answer("yes"),)
    assert one.evidence[1].text == "Blue Door (song), It is by Ann Ray."


def test_parts_share_no_question_and_hold_all(tmp_path: Path) -> None:
    records = [{**LINES, "question_id": str(number)} for number in range(60)]
    parts = {
        part: {c.id for c in convert(tmp_path, records, "--part", part)}
        for part in ("train", "tune", "dev")
    }
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == 60
    assert len(parts["train"]) > 40
    shares = [part_of(str(number)) for number in range(2000)]
    assert [round(shares.count(part) / 2000, 1) for part in parts] == [0.8, 0.1, 0.1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": [["A"]]}, r"context\[0\]: must be a title and a list of sentences"),
        ({"question": " "}, "question: empty"),
        ({"answer": ["Moundou"]}, "answer: must be a string"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        convert(tmp_path, [ORIGINAL | change])


def test_an_answer_without_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="answers_objects: the first must have a text in spans"):
        convert(tmp_path, [LINES | {"answers_objects": [{"spans": []}]}])


def test_a_part_without_a_question_is_an_error(tmp_path: Path) -> None:
    other = "dev" if part_of("a2") != "dev" else "tune"
    with pytest.raises(UserError, match=f"no question of {other} in it"):
        convert(tmp_path, [LINES], "--part", other)
