"""A folder of files as an evidence pool."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli
from turngraph.data.jsonlines import read_pool
from turngraph.data.sources.markdown import front_matter
from turngraph.data.sources.pool import main, read_documents
from turngraph.data.types import Evidence

MARKDOWN = """\
---
title: Peru
capital: Lima
---

# The land of Peru

Peru is a country in **South America**. Its capital is [Lima](https://x.org/a_(b)), founded on
January 18, 1535 by *Francisco Pizarro*. See `the_code` and snake_case_names.

<!-- not to be
seen -->
## Cities

- [x] Lima has 10,151,000 people. It is big.
- Cusco
  is old
  * nested item of Arequipa
1. The first one

| City | People | Founded |
|:-----|-------:|:-------:|
| **Lima** | 10,151,000 | 18 January 1535 |
| [Cusco](c.md) | 428,450 | |
| a \\| b | 30 | x | extra |

```python
def f(x):
    return x  # Lima
```

> Quoted text by *José*.

Rivers
------

![The Rímac](x.png) flows &amp; [[Amazon River|the Amazon]] too.

[ref]: http://x.y
"""
MARKDOWN_TEXTS = [
    ("infobox", "Peru, capital, Lima"),
    (
        "text",
        "Peru, The land of Peru, Peru is a country in South America. Its capital is Lima, founded "
        "on January 18, 1535 by Francisco Pizarro. See the_code and snake_case_names.",
    ),
    ("text", "Peru, The land of Peru, Cities, Lima has 10,151,000 people. It is big."),
    ("text", "Peru, The land of Peru, Cities, Cusco is old"),
    ("text", "Peru, The land of Peru, Cities, nested item of Arequipa"),
    ("text", "Peru, The land of Peru, Cities, The first one"),
    (
        "table",
        "Peru, The land of Peru, Cities, City is Lima, People is 10,151,000, "
        "Founded is 18 January 1535",
    ),
    ("table", "Peru, The land of Peru, Cities, City is Cusco, People is 428,450"),
    ("table", "Peru, The land of Peru, Cities, City is a | b, People is 30, Founded is x, extra"),
    ("text", "Peru, The land of Peru, Cities, def f(x):\n    return x  # Lima"),
    ("text", "Peru, The land of Peru, Cities, Quoted text by José."),
    ("text", "Peru, The land of Peru, Rivers, The Rímac flows & the Amazon too."),
]


def save(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def texts(passages: list[Evidence]) -> list[tuple[str, str]]:
    return [(passage.source, passage.text) for passage in passages]


def ids(passage: Evidence) -> set[str]:
    return {entity.id for entity in passage.entities}


def test_markdown(tmp_path: Path) -> None:
    passages = read_documents(save(tmp_path, sub__peru_md=MARKDOWN))
    assert texts(passages) == MARKDOWN_TEXTS
    assert [passage.id for passage in passages] == [
        f"sub/peru.md#{i}" for i in range(len(passages))
    ]
    assert ids(passages[1]) == {"peru", "south america", "lima", "1535-01-18", "francisco pizarro"}
    assert ids(passages[6]) == {"peru", "lima", "10151000", "1535-01-18"}
    assert "amazon" in ids(passages[11])


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Peru #\n\nText.", "Peru"),
        ("Text.\n\n## The *land*\n", "The land"),
        ("Peru\n====\n\nText.", "Peru"),
        ("Text.", "file"),
        ("---\nTitle: 'Peru'\n---\n# Land\n\nText.", "Peru, Land"),
        ("---\nText.", "file"),
    ],
)
def test_title_of_a_markdown_file(tmp_path: Path, text: str, title: str) -> None:
    assert texts(read_documents(save(tmp_path, file_md=text))) == [("text", f"{title}, Text.")]


def test_a_passage_names_the_headings_above_it(tmp_path: Path) -> None:
    text = "# Diary\n\nA.\n\n## 2023\n\n### 4 March\n\nRain. Snow.\n\n- D\n\n"
    text += "## 2024\n\nE.\n\n# End\n\nF."
    found = [text for _, text in texts(read_documents(save(tmp_path, a_md=text)))]
    assert found == [
        "Diary, A.",
        "Diary, 2023, 4 March, Rain. Snow.",
        "Diary, 2023, 4 March, D",
        "Diary, 2024, E.",
        "Diary, End, F.",
    ]


def test_unclosed_code_and_a_table_at_the_end_lose_nothing(tmp_path: Path) -> None:
    folder = save(tmp_path, a_md="```\nx = 10\ny", b_md="| A | B |\n|--|--|\n| 11 | 12 |")
    assert texts(read_documents(folder)) == [
        ("text", "a, x = 10\ny"),
        ("table", "b, A is 11, B is 12"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[^1]: Founded by Francisco Pizarro.", ["[^1]: Founded by Francisco Pizarro."]),
        ("[2021-05-01]: Met Anna in Rome.", ["[2021-05-01]: Met Anna in Rome."]),
        ("[ref]: http://x.y 'title'\nSee [ref].", ["See ref."]),
        ("`vector<int>` and `__init__`", ["vector<int> and __init__"]),
        ("- Anna Berg <anna@example.com>, head", ["Anna Berg anna@example.com, head"]),
        ("<div>\nSome <b>bold</b><script>x()</script>\n</div>", ["Some bold"]),
        (
            "Cities:\n| City | People |\n|-|-|\n| Lima | 10 |",
            ["Cities:", "City is Lima, People is 10"],
        ),
        ("- in\n  | A | B |\n  |-|-|\n  | x | y | z |", ["in", "A is x, B is y, z"]),
        ("> | A | B |\n> |-|-|\n> | x | y | z |", ["A is x, B is y, z"]),
        (
            "Ten ~~crowns, [x](y)~~ euros, <s>a <DEL>b</DEL></s>not <s>, `<s>`",
            ["Ten euros, not , <s>"],
        ),
        (
            "## a\n\n<table><tr><th>City</th><th>People</th></tr>\n<tr><td>Lima</td><td>10 "
            "<del>9</del></td></tr>\n\n<tr><td>Puno</td><td>\n\n**2** &amp; 3\n\n</td></tr>\n"
            "</table>\n\n# C\n\nD.",
            ["City is Lima, People is 10", "City is Puno, People is 2 & 3", "C, D."],
        ),
        ("- <table><tr><td>\n\nNever closed, <s>not</s>.", ["Never closed, ."]),
    ],
)
def test_markdown_that_is_easily_lost(tmp_path: Path, text: str, expected: list[str]) -> None:
    found = texts(read_documents(save(tmp_path, a_md=text)))
    assert [found_text.removeprefix("a, ") for _, found_text in found] == expected


def test_lines_without_full_stops_are_passages_of_their_own(tmp_path: Path) -> None:
    lines = [f"{n}: we met in room {n}" for n in range(60)]
    passages = read_documents(save(tmp_path, chat_txt="\n".join(lines)))
    assert [passage.text for passage in passages] == [f"chat, {line}" for line in lines]
    wrapped = "Lima is the capital of Peru and\nits largest city."
    assert len(read_documents(save(tmp_path / "other", a_txt=wrapped))) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Price (EUR, net);Number\n1,50;3", "Price (EUR, net) is 1,50, Number is 3"),
        ("Product;Price, EUR\nBread;1,50", "Product is Bread, Price, EUR is 1,50"),
        ("City,Tags\nLima,a;b", "City is Lima, Tags is a;b"),
        ("City,Tags;more\nLima", "City is Lima"),
        ("City|Tags, all\nLima|a, b", "City is Lima, Tags, all is a, b"),
        ("sep=;\nname;city\nAnna;Oslo", "name is Anna, city is Oslo"),
        ('"SEP=|"\r\nname|city, land\r\nAnna|Oslo', "name is Anna, city, land is Oslo"),
        ("sep=,\nname;city,a\nAnna;Oslo,b", "name;city is Anna;Oslo, a is b"),
    ],
)
def test_what_parts_the_cells_of_a_csv(tmp_path: Path, text: str, expected: str) -> None:
    [passage] = read_documents(save(tmp_path, p_csv=text))
    assert passage.text == f"p, {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("City,People\nLima,10", ["City is Lima, People is 10"]),
        ("Lima,10.5\nCusco,2", ["Lima, 10.5", "Cusco, 2"]),
        ("1,Lima\n2,Cusco\n3,Puno", ["1, Lima", "2, Cusco", "3, Puno"]),
        ("2 May 2020;-3\n3 May 2020;4", ["2 May 2020, -3", "3 May 2020, 4"]),
        ("City,2020,2021\nLima,9,10\nOslo,1,2", None),
        ("1,Lima", ["1, Lima"]),
        ("City,Land\nLima,Peru", ["City is Lima, Land is Peru"]),
        (",People\nLima,10", ["Lima, People is 10"]),
        ("City,Born\nLima,", ["City is Lima"]),
    ],
)
def test_a_csv_without_a_header(tmp_path: Path, text: str, expected: list[str] | None) -> None:
    found = [
        passage.text.removeprefix("p, ") for passage in read_documents(save(tmp_path, p_csv=text))
    ]
    assert found == (
        expected or ["City is Lima, 2020 is 9, 2021 is 10", "City is Oslo, 2020 is 1, 2021 is 2"]
    )


def test_a_first_row_that_may_be_a_header_is_named(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "turngraph.data.sources.readers")  # which written.py quiets
    read_documents(save(tmp_path, a_csv="City,People\nLima,10", b_csv="City,Land\nLima,Peru"))
    said = [line for line in caplog.messages if "first row" in line]
    assert said == [f"{tmp_path}/b.csv: its first row is taken for the names of the columns"]


def test_rows_of_other_lengths_do_not_lose_the_file(tmp_path: Path, caplog: Any) -> None:
    text = "A,B\n1,2\n1,2,3\n4\n5,6,\n7,8,,9\n"
    found = [passage.text for passage in read_documents(save(tmp_path, p_csv=text))]
    assert found == [
        f"p, {row}"
        for row in (
            "A is 1, B is 2",
            "A is 1, B is 2, 3",
            "A is 4",
            "A is 5, B is 6",
            "A is 7, B is 8, 9",
        )
    ]
    [warned] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warned == f"{tmp_path}/p.csv, line 3: 2 rows with more cells than the header has"


def test_plain_text(tmp_path: Path) -> None:
    text = (
        "\ufeffLima is large. The river Rímac\r\nflows, says Dr. Diaz.\r\n\r\n# no heading\n---\n"
    )
    assert texts(read_documents(save(tmp_path, notes_txt=text))) == [
        ("text", "notes, Lima is large. The river Rímac flows, says Dr. Diaz."),
        ("text", "notes, # no heading ---"),
    ]


def sentence(num_bytes: int) -> str:
    return "W" + "w" * (num_bytes - 2) + "."


CHINESE = "桥" * 19 + "。"  # of 60 bytes, without spaces around it


@pytest.mark.parametrize("ending", ["txt", "md"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two!\nThree? — Four", ["One. Two! Three? — Four"]),
        ("One.\n\nTwo.", ["One.", "Two."]),
        (
            f"{sentence(89)} {sentence(90)} {sentence(89)} {sentence(91)} One.",
            [f"{sentence(89)} {sentence(90)}", sentence(89), f"{sentence(91)} One."],
        ),
        (f"One. {sentence(200)} Two.", ["One.", sentence(200), "Two."]),
        (sentence(600), [sentence(600)]),
        (CHINESE * 5, [CHINESE * 3, CHINESE * 2]),
        (f"{CHINESE}\n{CHINESE} {CHINESE}", [f"{CHINESE} {CHINESE}", CHINESE]),
    ],
)
def test_sentences_of_a_paragraph_share_a_passage_up_to_180_bytes(
    tmp_path: Path, ending: str, text: str, expected: list[str]
) -> None:
    found = read_documents(save(tmp_path, **{f"a_{ending}": text}))
    assert texts(found) == [("text", f"a, {passage}") for passage in expected]
    kept = [passage.text.removeprefix("a, ") for passage in found]
    assert "".join("".join(kept).split()) == "".join(text.split())


def test_html(tmp_path: Path) -> None:
    page = (
        "<html><head><title>A page</title><style>p {}</style></head><body>"
        "<p>Lima is the capital of <a href='/wiki/Peru'>Peru</a>. It is old.</p>"
        "<table><tr><th>City</th><th>People</th></tr><tr><td>Cusco</td><td>428,450</td></tr></table>"
        "</body></html>"
    )
    headed = page.replace("<body>", "<body><h1>Lima</h1>")
    passages = read_documents(save(tmp_path, a_html=page, b_htm=headed, c_md="He saw Cusco."))
    assert texts(passages[:2]) == [
        ("text", "A page, Lima is the capital of Peru. It is old."),
        ("table", "A page, City is Cusco, People is 428,450"),
    ]
    assert passages[2].text == "Lima, Lima is the capital of Peru. It is old."
    assert passages[2].id == "b.htm#0"
    assert {"peru", "lima"} <= ids(passages[0])
    assert {"cusco", "428450"} <= ids(passages[1])
    assert "cusco" in ids(passages[-1])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "cities_csv",
            'City,"People, all",Founded\r\n\r\n"Lima, Peru","10,151,000",\r\nCusco,12\r\n',
        ),
        ("cities_csv", "City;People, all;Founded\nLima, Peru;10,151,000\nCusco;12;;\n"),
        ("cities_tsv", "City\tPeople, all\tFounded\nLima, Peru\t10,151,000\t\nCusco\t12"),
    ],
)
def test_csv(tmp_path: Path, name: str, text: str) -> None:
    if ";" in text:
        text = text.replace("People, all", "People").replace(", ", " ")
    passages = read_documents(save(tmp_path, **{name: text}))
    assert [passage.source for passage in passages] == ["table", "table"]
    assert passages[0].text.startswith("cities, City is Lima")
    assert passages[1].text.endswith("is 12")
    assert {"lima peru", "10151000", "cities"} <= ids(passages[0])


def test_equal_names_in_different_files_are_one_entity(tmp_path: Path) -> None:
    passages = read_documents(
        save(
            tmp_path,
            a_csv="City,Day\nLima,1535-01-18\n",
            b_md="# Notes\n\nHe saw [Lima](l.md) on January 18, 1535.",
            c_html="<title>Lima</title><p>It is from 18 January 1535.</p>",
        )
    )
    assert set.intersection(*map(ids, passages)) == {"lima", "1535-01-18"}


def test_files_come_in_order_and_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, two_txt="Two.", a__one_txt="One.", x_bin=b"\xff", sub__y_png="", e_md="\n")
    save(
        tmp_path,
        z_csv="",
        bad_csv='A,B\n1,"2"3\n',
        k_txt="Мост через реку был построен.".encode("koi8-r"),
    )
    with caplog.at_level(logging.INFO):
        passages = read_documents(tmp_path)
    names = ["a/one.txt#0", "k.txt#0", "two.txt#0"]
    assert [passage.id for passage in passages] == names
    for message in (
        "2 files of other kinds not read: sub/y.png, x.bin",
        f"skipped {tmp_path}/e.md: nothing to read in it",
        f"skipped {tmp_path}/z.csv: empty",
        f"skipped {tmp_path}/bad.csv, line 2: broken CSV: ',' expected after",
        "3 files skipped: broken CSV (1), nothing to read in it (1), empty (1)",
        "1 file in other encodings: k.txt (koi8-r)",
        "3 files read: 3 .txt",
        "3 passages: 3 text",
        "found 3 entities in 3 passages",
    ):
        assert message in caplog.text


BAD = {
    "not UTF-8": ("b_md", "né à Évian\nna".encode() + b"\xefve\n", "b.md, line 2: broken UTF-8: "),
    "no text": ("b_txt", bytes(range(256)), "b.txt: binary data, no text"),
    "empty": ("b_html", b"", "b.html: empty"),
    "nothing": ("b_md", "\n", "b.md: nothing to read in it"),
    "open quote": ("b_csv", 'A,B\n1,2\n"3,4\n5,6\n', "b.csv, line 4: broken CSV: unexpected end"),
    "large cell": (
        "b_csv", "a,b\n1,2\n" + "x" * 140_000 + ",3\n", "b.csv, line 3: broken CSV: field larger",
    ),
    "quote inside": ("b_csv", 'A,B\n"1"x,2\n', "b.csv, line 2: broken CSV: ',' expected after"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), BAD.values(), ids=BAD.keys())
def test_a_file_that_cannot_be_read_is_skipped_or_with_strict_an_error(
    tmp_path: Path, name: str, content: str | bytes, message: str, caplog: Any, capsys: Any
) -> None:
    folder = save(tmp_path / "in", a_txt="Fine.", **{name: content})
    output = tmp_path / "pool.jsonl"
    command = ["--input", str(folder), "--output", str(output)]
    run_cli(lambda: main(command))
    assert f"skipped {folder}/{message}" in caplog.text
    assert [passage.id for passage in read_pool(output)] == ["a.txt#0"]
    output.unlink()
    with pytest.raises(SystemExit) as ended:
        run_cli(lambda: main([*command, "--strict"]))
    assert ended.value.code == 2
    assert f"error: {folder}/{message}" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_folder_with_nothing_to_read_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="no such file or folder"):
        read_documents(tmp_path / "no")
    with pytest.raises(ValueError, match=r"no file with one of \.txt, \.md"):
        read_documents(save(tmp_path, a_bin=""))
    caplog.clear()
    with pytest.raises(ValueError, match=r"none of its files can be read; first: .*a\.csv: empty"):
        read_documents(save(tmp_path / "alone", a_csv=""))
    assert not caplog.messages  # it is told once


def test_command_line(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", a_md=MARKDOWN)
    main(["--input", str(folder), "--output", str(tmp_path / "pool.jsonl")])
    assert list(read_pool(tmp_path / "pool.jsonl")) == read_documents(folder)


@pytest.mark.parametrize(
    ("text", "facts", "rest"),
    [
        ("---\ntitle: Peru\n---\nText.", [("title", "Peru")], "\nText."),
        ("---\na: 1\nnot a pair\n---\nText.", [("a", "1")], "not a pair\n\nText."),
        ("---\nkey:no space\n---\nText.", [], "key:no space\n\nText."),
        ("---\nnames: [\"A\", 'B']\n---", [("names", "A\", 'B")], ""),
        ("---\nnever: closed\nText.", [], "---\nnever: closed\nText."),
        ("Text.\n---\na: 1\n---\n", [], "Text.\n---\na: 1\n---\n"),
        (" --- \na: 1\n --- \nText.\n---\nMore.", [("a", "1")], "\nText.\n---\nMore."),
        ("", [], ""),
    ],
)
def test_front_matter(text: str, facts: list[tuple[str, str]], rest: str) -> None:
    assert front_matter(text) == (facts, rest)


def test_an_output_that_is_a_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Is a directory; --output must name a file"):
        main(["--input", str(tmp_path / "missing"), "--output", str(tmp_path)])


def test_files_and_folders_are_one_pool(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", a_txt="One.", b_txt="Two.")
    (tmp_path / "a.txt").write_text("Three.")
    command = ["--input", str(tmp_path / "a.txt"), str(folder), "--output", str(tmp_path / "p")]
    main(command)
    assert [(passage.id, passage.text) for passage in read_pool(tmp_path / "p")] == [
        ("a.txt#0", "a, Three."), ("a.txt#0'", "a, One."), ("b.txt#0", "b, Two."),
    ]  # fmt: skip
    (tmp_path / "a.bin").write_text("One.")
    for name, message in (("a.bin", "ends in none of"), ("b.txt", "no such file or")):
        with pytest.raises(UserError, match=f"{name}: {message}"):
            read_documents(folder, tmp_path / name)
