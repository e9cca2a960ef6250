"""Chat logs: each passage of a message names its speaker and its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from turngraph.data.sources.chat_log import messages, times
from turngraph.data.sources.readers import read_document
from turngraph.tests.growing import assert_grows_linearly, cpu_seconds

WHATSAPP = """\
14/05/2024, 18:01 - Messages are encrypted.
14/05/2024, 18:02 - Noor: Who brings the samovar? Mine is broken.
14/05/2024, 18:05 - Emil: I do
14/05/2024, 18:06 - Beatriz: The cake is mine.
Plums this time. With cream.
They are from the tree behind the school, which nobody has picked since the caretaker left for Oslo.
17:00 is too late. Bring a few spoons.
"""


def texts(folder: Path, text: str) -> list[str]:
    path = folder / "chat.txt"
    path.write_text(text, encoding="utf-8")
    return [passage.text.removeprefix("chat, ") for passage in read_document(path).passages]


def test_each_passage_names_speaker_and_date(tmp_path: Path) -> None:
    assert texts(tmp_path, WHATSAPP) == [
        "14/05/2024, 18:01 - Messages are encrypted.",
        "14/05/2024, 18:02 - Noor: Who brings the samovar? Mine is broken.",
        "14/05/2024, 18:05 - Emil: I do",
        "14/05/2024, 18:06 - Beatriz: The cake is mine. Plums this time. With cream. They are from "
        "the tree behind the school, which nobody has picked since the caretaker left for Oslo. "
        "17:00 is too late.",
        "14/05/2024, 18:06 - Beatriz: Bring a few spoons.",
    ]


@pytest.mark.parametrize(
    "head",
    [
        "[14.05.24, 18:02:11] Noor:",
        "[14.05.24, 18:02:11] ~ Noor:",
        "5/14/24, 6:02\u202fPM - Noor Vis:",
        "2024-05-14 18:02 Noor:",
        "2024-05-14T18:02:11 <noor>",
        "[18:02] <noor>",
        "18:02 <noor>",
        "(6:02 pm) Dr. Noor:",
        "李雷:",
        "Noor:",
    ],
)
def test_heads_of_other_programs(head: str, tmp_path: Path) -> None:
    text = f"{head} One is. Two is.\n{head} Three is"
    assert texts(tmp_path, text) == [f"{head} One is. Two is.", f"{head} Three is"]


@pytest.mark.parametrize("head", ["Noor — 14/05/2024 18:02", "Noor  6:02 PM", "Noor [18:02]"])
def test_heads_on_a_line_of_their_own(head: str, tmp_path: Path) -> None:
    text = f"{head}\nOne is. Two is.\n\n{head}\nThree is"
    assert texts(tmp_path, text) == [f"{head}: One is. Two is.", f"{head}: Three is"]


def test_a_day_above_times_stays_with_them(tmp_path: Path) -> None:
    text = "--- 14 May 2024 ---\n18:02 Noor: One. Two.\n--- 15 May 2024 ---\n07:30 Emil: Three."
    assert texts(tmp_path, text) == [
        "14 May 2024, 18:02 Noor: One. Two.",
        "15 May 2024, 07:30 Emil: Three.",
    ]
    diary = "# 14 May 2024\nIt rained.\n\nPeas grew.\n\n2024-05-15\n\nSnow."
    assert texts(tmp_path, diary) == [
        "14 May 2024, It rained.", "14 May 2024, Peas grew.", "2024-05-15, Snow.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "Name: Anna\nCity: Lima\n\nName: Bert\nCity: Oslo\n",
        "Lima is large. Note: it\nis old: very.\n",
        "We met at 18:02. Noor: a cook.\nThe ratio was 3:1 then.\n",
        "18:02 the train left.\n18:05 it came back.\n",
        "Dear all,\n\nPS: bring cups.\n\nNoor\n",
        "Noor: hello\n",
        "Q: Who?\nA: Noor.\n\nQ: Where?\nA: In Oslo.\n",
        "",
    ],
)
def test_other_texts_are_no_logs(text: str) -> None:
    assert not any(message.head for message in messages(text))


@pytest.mark.parametrize("line", ["1:11 " * 900, "a" + " " * 4000 + "b", "<" * 4000])
def test_the_time_grows_as_the_text_does(line: str) -> None:
    assert_grows_linearly(lambda num: cpu_seconds(lambda: messages(f"{line}\n" * num)), 20)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        (WHATSAPP, "2024-05-14T18:01 2024-05-14T18:02 2024-05-14T18:05 2024-05-14T18:06"),
        (
            "[1.2.24, 18:02:11] A: x\n[2.2.24, 0:02:11] A: x",
            "2024-02-01T18:02:11 2024-02-02T00:02:11",
        ),
        (
            "5/30/24, 12:02\u202fAM - A: x\n6/2/24, 6:02\u202fPM - A: x",
            "2024-05-30T00:02 2024-06-02T18:02",
        ),
        ("1/9/24, 1:02 - A: x\n2/8/24, 1:02 - A: x", "2024-01-09T01:02 2024-02-08T01:02"),
        ("A — 2024-05-14 18:02\nx\nA — 2024-05-15 25:02\nx", "2024-05-14T18:02 2024-05-15"),
        (
            "- 14 May 2024 -\n18:02 <A> x\n18:03 <A> x",
            "2024-05-14 2024-05-14T18:02 2024-05-14T18:03",
        ),
        ("18:02 <A> x\n18:03 <A> x", "None None"),
        ("A: x\nB: x\nA: x", "None None None"),
    ],
)
def test_times_of_messages(text: str, when: str) -> None:
    found = messages(text)
    said, doubtful = times(found[1:])
    assert (" ".join(map(str, said)), doubtful) == (when, "")


def test_a_date_that_may_be_two_has_the_day_first_and_is_named() -> None:
    found = messages("02/08/2024, 18:02 - A: x\n02/08/2024, 18:03 - A: x")
    assert times(found)[0][1:] == ["2024-08-02T18:02", "2024-08-02T18:03"]
    assert times(found)[1] == "02/08/2024"
