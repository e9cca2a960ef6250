"""PDF files as evidence: pages, hyphens, running heads, and files that hold nothing to read."""

from __future__ import annotations

import io
import logging
import zlib
from pathlib import Path

import pypdf
import pytest

from turngraph.data.sources import pdf as module
from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.pool import read_documents
from turngraph.data.types import Evidence
from turngraph.inference.evidence import read_evidence
from turngraph.tests.data.sources.made_documents import (
    docx,
    paragraph,
    pdf,
    pdf_of_lines,
    pdf_of_page,
    pdf_of_places,
    pdf_of_texts,
    stream,
)

REPORT = (
    "Yearly report - page 1\nThe bridge was re-\nbuilt in 1920 by the city.\nIt is well-\nknown. "
    "A well-known toll",
    "Yearly report - page 2\nof two crowns was paid in the years 1925-\n1950.",
    "Yearly report - page 3\nThe end.",
)


def read(folder: Path, content: bytes, name: str = "file.pdf") -> list[Evidence]:
    (folder / name).write_bytes(content)
    return read_documents(folder / name)


def texts(folder: Path, *pages: str, title: str = "") -> list[str]:
    return [passage.text for passage in read(folder, pdf_of_texts(pages, title))]


def test_passages_name_the_page_that_they_begin_on(tmp_path: Path) -> None:
    found = read(tmp_path, pdf_of_texts(REPORT, "The bridge"))
    assert [(passage.id, passage.text) for passage in found] == [
        (
            "file.pdf, page 1#0",
            "The bridge, The bridge was rebuilt in 1920 by the city. It is well-known. "
            "A well-known toll of two crowns was paid in the years 1925-1950.",
        ),
        ("file.pdf, page 3#1", "The bridge, The end."),
    ]
    assert {passage.source for passage in found} == {"text"}
    assert "The bridge" in {entity.label for entity in found[0].entities}


COLUMNS = (
    ("The mill stands on the river", "The bridge was built by the"),
    ("Aar since 1840 and grinds the", "town in 1911 to bring grain"),
    ("flour of the whole valley. In", "across. Carts paid two crowns"),
    ("1902 it burned down and was", "of toll until 1950. The toll"),
    ("built again by Anna Roth. It", "house is now a small museum"),
    ("has three wheels of oak wood.", "that opens on Sundays only."),
)
HEAD = "The valley and its two old buildings: a short history for visitors of all ages."


@pytest.mark.parametrize("drop", [0, 5])
@pytest.mark.parametrize("by_word", [False, True])
def test_columns_that_are_drawn_line_by_line_are_read_one_after_the_other(
    tmp_path: Path, drop: int, by_word: bool
) -> None:
    """Their lines may stand at other heights, and be drawn word by word."""
    left, right = (" ".join(column) for column in zip(*COLUMNS, strict=True))
    lines = [(72, 740, HEAD)]
    for row, texts in enumerate(COLUMNS):
        lines += [(72, 700 - 14 * row, texts[0]), (320, 700 - 14 * row - drop, texts[1])]
    lines.append((72, 500, HEAD))
    if by_word:
        lines = [
            (x + 5 * len("".join(words[:number])) + 3 * number, y, word)
            for x, y, text in lines
            for words in [text.split()]
            for number, word in enumerate(words)
        ]
    found = read(tmp_path, pdf_of_places(lines))
    text = " ".join(passage.text.removeprefix("file, ") for passage in found)
    assert text.replace(" ", "") == f"{HEAD}{left}{right}{HEAD}".replace(" ", "")


def test_a_table_is_read_by_rows(tmp_path: Path) -> None:
    rows = [("City of Peru", "People", "Founded")]
    rows += [(f"the city {n}", f"{n}151000 people now", f"in 15{n}5") for n in range(8)]
    places = [
        (x, 700 - 14 * number, text)
        for number, row in enumerate(rows)
        for x, text in zip((72, 220, 420), row, strict=True)
    ]
    [found] = read(tmp_path, pdf_of_places(places))
    assert found.text == "file, " + " ".join(" ".join(row) for row in rows)


def test_headings_stand_before_the_passages_below_them(tmp_path: Path) -> None:
    first = [
        (20, "The bridge"), (14, "A toll of"), (14, "two crowns"),
        (10, "It was paid by all. The last toll was"),
    ]  # fmt: skip
    second = [
        (10, "paid in 1950."), (-10, "Repairs"), (10, "In 1970 it rained."), (14, "Sources"),
        (10, "The town archive, 14 pages."), (14, "No more"),
    ]  # fmt: skip
    found = read(tmp_path, pdf_of_lines(first, second))
    assert [(passage.id, passage.text) for passage in found] == [
        (
            "file.pdf, page 1#0",
            "file, The bridge, A toll of two crowns, It was paid by all. "
            "The last toll was paid in 1950.",
        ),
        (
            "file.pdf, page 2#1",
            "file, The bridge, A toll of two crowns, Repairs, In 1970 it rained.",
        ),
        ("file.pdf, page 2#2", "file, The bridge, Sources, The town archive, 14 pages."),
        ("file.pdf, page 2#3", "file, The bridge, No more"),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(30, "T"), (10, "he town is old. It is large.")], ["T he town is old. It is large."]),
        ([(20, "Long " * 50), (10, "It is old. " * 50)], [f"{'Long ' * 50}It is old."]),
        ([(10, "A line of text."), (8, "A note.")], ["A line of text. A note."]),
        ([(-10, "All is bold."), (-10, "As this.")], ["All is bold. As this."]),
        ([(20, "Only"), (20, "large")], ["Only large"]),
    ],
)
def test_what_is_no_heading(
    lines: list[tuple[int, str]], expected: list[str], tmp_path: Path
) -> None:
    found = [passage.text for passage in read(tmp_path, pdf_of_lines(lines))]
    assert found[: len(expected)] == [f"file, {text}" for text in expected]


@pytest.mark.parametrize(
    "title", ["", "Microsoft Word - report.doc", "untitled", "report_final.indd", "3 May 2021"]
)
def test_a_title_that_is_a_file_name_or_a_date_gives_way_to_the_name(
    tmp_path: Path, title: str
) -> None:
    assert texts(tmp_path, "Lima is old.", title=title) == ["file, Lima is old."]


def test_lines_that_most_pages_share_are_left_out_and_others_stay(tmp_path: Path) -> None:
    pages = [f"Part {n}\nOn day {n} it rained.\n{n}" for n in range(1, 5)]
    assert texts(tmp_path, *pages) == [f"file, On day {n} it rained." for n in range(1, 5)]
    assert len(texts(tmp_path, "Rain.", "Rain.", "Rain.")) == 3
    assert texts(tmp_path, "A head\nOne.", "A head\nTwo.")[0] == "file, A head One."


def test_lines_without_full_stops_are_passages_of_their_own(tmp_path: Path) -> None:
    lines = [f"{n} rooms with a view of the lake" for n in range(40)]
    assert texts(tmp_path, "\n".join(lines)) == [f"file, {line}" for line in lines]


def test_pages_without_text_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert texts(tmp_path, "One.", "", "Three.") == ["file, One.", "file, Three."]
    assert "file.pdf: no text on 1 of 3 pages" in caplog.text


def image_only() -> bytes:
    form = "/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8"
    page = "/Resources<</XObject<</I 4 0 R>>>>/Contents 5 0 R"
    return pdf_of_page(page, stream(b"\0", form), stream("/I Do"))


def encrypted(password: str, algorithm: str = "AES-256") -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_of_texts(["Lima is old."])))
    writer.encrypt(user_password=password, owner_password="owner", algorithm=algorithm)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def forms_in_forms(depth: int) -> bytes:
    """Each form draws the next 20 times: 20^depth operations in a file of some thousand bytes."""
    kind = "/Type/XObject/Subtype/Form/BBox[0 0 9 9]"
    forms = [
        stream("/F Do " * 20, f"{kind}/Resources<</XObject<</F {i + 6} 0 R>>>>")
        for i in range(depth)
    ]
    page = "/Resources<</XObject<</F 5 0 R>>>>/Contents 4 0 R"
    return pdf_of_page(page, stream("/F Do"), *forms, stream("BT (x) Tj ET", kind))


CATALOGUE = "<</Type/Catalog/Pages 2 0 R>>"
UNREADABLE = {
    "image": (image_only(), "holds images only, no text"),
    "blank": (pdf_of_texts([""]), "holds no text"),
    "password": (encrypted("secret"), "encrypted: a password is needed"),
    "no pdf": (b"hello", "broken PDF"),
    "cut": (pdf_of_texts(["Lima."])[:200], "broken PDF"),
    "pages in a circle": (
        pdf([CATALOGUE, "<</Type/Pages/Count 1000000/Kids[2 0 R 2 0 R]>>"]),
        "broken PDF",
    ),
    "deep pages": (
        pdf(
            [
                CATALOGUE,
                *(f"<</Type/Pages/Count 1/Kids[{i + 3} 0 R]>>" for i in range(2000)),
                "<</Type/Page>>",
            ]
        ),
        "broken PDF",
    ),
    "deep array": (
        pdf([f"<</Type/Catalog/X {'[' * 50_000}{']' * 50_000}>>", "<</Kids[]>>"]),
        "broken PDF",
    ),
    "forms in forms": (forms_in_forms(20), "holds no text"),
    "a form in itself": (
        pdf_of_page(
            "/Resources<</XObject<</F 5 0 R>>>>/Contents 4 0 R",
            stream("/F Do"),
            stream(
                "/F Do /F Do",
                "/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F 5 0 R>>>>",
            ),
        ),
        "holds no text",
    ),
    "bomb": (
        pdf_of_page(
            "/Contents 4 0 R", stream(zlib.compress(bytes(1 << 27)), "/Filter/FlateDecode")
        ),
        "broken PDF",
    ),
}


@pytest.mark.parametrize(("content", "reason"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path, content)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(f"{tmp_path}/file.pdf: {reason}")


@pytest.mark.parametrize("algorithm", ["AES-256", "RC4-128"])
def test_a_file_that_needs_no_password_to_be_read_is_read(tmp_path: Path, algorithm: str) -> None:
    assert [p.text for p in read(tmp_path, encrypted("", algorithm))] == ["file, Lima is old."]


@pytest.mark.parametrize(
    ("limit", "value", "detail"),
    [
        ("MAX_PAGES", 2, "more than 2 pages"),
        ("MAX_CHARACTERS", 9, "more than 9 characters"),
        ("MAX_OPERATIONS", -9_000, "its pages have more than -?[0-9]+ operations"),
        ("MAX_CONTENT_BYTES", -99_999, "its pages draw more than -[0-9]+ bytes"),
    ],
)
def test_sizes_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, detail: str
) -> None:
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(Unreadable, match=f"file.pdf: too large: {detail}"):
        read(tmp_path, pdf_of_texts(REPORT))


def test_what_the_library_repairs_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = pdf_of_texts(["Lima is old."]).replace(b"startxref\n", b"startxref\n1")
    with caplog.at_level(logging.WARNING):
        assert [passage.text for passage in read(tmp_path, content)] == ["file, Lima is old."]
    assert caplog.text == ""


def test_half_a_surrogate_pair_does_not_end_the_reading(tmp_path: Path) -> None:
    codes = "1 begincodespacerange <00> <ff> endcodespacerange"
    content = pdf_of_page(
        "/Resources<</Font<</F 5 0 R>>>>/Contents 4 0 R",
        stream("BT /F 9 Tf (A is old. It is cold.) Tj ET"),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        stream(f"begincmap {codes} 1 beginbfchar <41> <D800> endbfchar endcmap"),
    )
    assert [p.text for p in read(tmp_path, content)] == ["file, \ud800 is old. It is cold."]


def test_documents_are_evidence_beside_texts(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf_of_texts(["Lima is old."]))
    (tmp_path / "b.docx").write_bytes(docx(paragraph("Oslo is cold.")))
    single = read_evidence([tmp_path / "a.pdf", str(tmp_path / "b.docx"), "Rome is warm."])
    assert [passage.id for passage in single] == ["a.pdf, page 1#0", "b.docx#0", "text#0"]
    assert [p.id for p in read_evidence([tmp_path])] == ["a.pdf, page 1#0", "b.docx#0"]
    (tmp_path / "a.pdf").write_bytes(image_only())
    with pytest.raises(Unreadable, match=r"a.pdf: holds images only, no text"):
        read_evidence([tmp_path / "a.pdf"])
