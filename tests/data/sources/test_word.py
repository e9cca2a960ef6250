"""Word files as evidence: what stands in their paragraphs, lists, tables and notes."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from turngraph.data.sources import word as module
from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.pool import read_documents
from turngraph.tests.data.sources.made_documents import docx, paragraph, table

INSERTED = "<w:p><w:ins><w:r><w:t>Inserted text stays.</w:t></w:r></w:ins>"
STRUCK = "<w:r><w:rPr><w:strike/></w:rPr><w:t>Struck text goes.</w:t></w:r>"
MOVED = "<w:moveFrom><w:r><w:t>Moved text is read where it is now.</w:t></w:r></w:moveFrom>"
DELETED = (
    f"{STRUCK}{MOVED}<w:del><w:r><w:delText>Deleted text goes.</w:delText></w:r></w:del></w:p>"
)
CONTROL = f"<w:sdt><w:sdtContent>{paragraph('A form holds this.')}</w:sdtContent></w:sdt>"
CORE = '<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Port of  Dal</dc:title></p>'


def read(folder: Path, content: bytes) -> list[tuple[str, str]]:
    (folder / "file.docx").write_bytes(content)
    return [(passage.source, passage.text) for passage in read_documents(folder / "file.docx")]


def test_paragraphs_headings_and_tables(tmp_path: Path) -> None:
    body = (
        paragraph("The harbour", "T")
        + paragraph("Built in 1912. It has two piers.")
        + paragraph("Ships", "H")
        + table(["Ship", "Length", "Built"], ["Aurora", "41 m", "1999"], ["Bris", "2*unknown"])
        + f"{INSERTED}{DELETED}{CONTROL}"
    )
    assert read(tmp_path, docx(body)) == [
        ("text", "The harbour, Built in 1912. It has two piers."),
        ("table", "The harbour, Ships, Ship is Aurora, Length is 41 m, Built is 1999"),
        ("table", "The harbour, Ships, Ship is Bris, Length and Built is unknown"),
        ("text", "The harbour, Ships, Inserted text stays."),
        ("text", "The harbour, Ships, A form holds this."),
    ]
    found = read_documents(tmp_path / "file.docx")
    assert [passage.id for passage in found] == [f"file.docx#{i}" for i in range(5)]
    assert {"aurora", "1999"} <= {entity.id for entity in found[1].entities}


def test_a_passage_names_the_headings_above_it(tmp_path: Path) -> None:
    body = paragraph("Minutes", "T") + "".join(
        paragraph(day, "H")
        + paragraph("Tove spoke.")
        + table(["Ship", "Flag", "Length"], ["Bris", "NO", length])
        for day, length in (("4 May", "41 m"), ("9 May", "42 m"))
    )
    assert read(tmp_path, docx(body)) == [
        ("text", "Minutes, 4 May, Tove spoke."),
        ("table", "Minutes, 4 May, Ship is Bris, Flag is NO, Length is 41 m"),
        ("text", "Minutes, 9 May, Tove spoke."),
        ("table", "Minutes, 9 May, Ship is Bris, Flag is NO, Length is 42 m"),
    ]


def test_the_title_is_the_first_of_heading_property_and_name(tmp_path: Path) -> None:
    text = paragraph("Lima is old.")
    assert read(tmp_path, docx(text)) == [("text", "file, Lima is old.")]
    assert read(tmp_path, docx(text, core=CORE)) == [("text", "Port of Dal, Lima is old.")]
    titled = docx(paragraph("Peru", "T") + text, core=CORE)
    assert read(tmp_path, titled) == [("text", "Peru, Lima is old.")]


def deep(depth: int) -> str:
    before, after = "<w:sdt><w:sdtContent>", "</w:sdtContent></w:sdt>"
    return before * depth + paragraph("Lima.") + after * depth


def entities() -> str:
    """Ten entities, each ten times the one before."""
    lines = [f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10)]
    return f'<!DOCTYPE w [<!ENTITY e0 "aaaaaaaaaa">{"".join(lines)}]>'


def without_document() -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("text.xml", "<a/>")
    return out.getvalue()


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
CHOICE = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
BOX = 'xmlns:wordml="http://schemas.microsoft.com/office/word/2010/wordml"'
SHOWN = {
    "field": (f"<w:fldSimple w:instr='DATE'>{run('Anna Berg')}</w:fldSimple>", "Anna Berg"),
    "field in a field": (
        f"<w:fldSimple w:instr='IF'><w:fldSimple w:instr='NAME'>{run('Anna')}</w:fldSimple>"
        "</w:fldSimple>",
        "Anna",
    ),
    "equation": (
        f"<m:oMathPara {MATH}><m:oMath><m:r><m:t>E=</m:t></m:r><m:sSup><m:e><m:r><m:t>mc</m:t>"
        "</m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></m:oMathPara>",
        "E=mc^2",
    ),
    "fraction": (
        f"<m:oMath {MATH}><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r>"
        "</m:den></m:f></m:oMath>",
        "1/2",
    ),
    "sum and root": (
        f"<m:oMath {MATH}><m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub><m:r><m:t>0</m:t>"
        "</m:r></m:sub><m:e><m:rad><m:e><m:r><m:t>x</m:t></m:r></m:e></m:rad></m:e></m:nary>"
        "<m:nary><m:e><m:r><m:t>y</m:t></m:r></m:e></m:nary></m:oMath>",
        "∑_0√x∫y",
    ),
    "boxes": (
        "".join(
            f"<w:sdt><w:sdtPr><wordml:checkbox {BOX}><wordml:checked wordml:val='{on}'/>"
            f"</wordml:checkbox></w:sdtPr><w:sdtContent>{run('?')}</w:sdtContent></w:sdt>"
            f"{run(f' {name} ')}"
            for on, name in ((1, "member"), (0, "guest"))
        ),
        "☒ member ☐ guest",
    ),
    "ruby": (
        f"<w:ruby><w:rubyPr/><w:rt>{run('toukyou')}</w:rt><w:rubyBase>{run('東京')}</w:rubyBase>"
        "</w:ruby>",
        "東京",
    ),
    "direction": (f"<w:bdo w:val='rtl'><w:dir w:val='rtl'>{run('Lod')}</w:dir></w:bdo>", "Lod"),
    "link": (
        f"<w:hyperlink><w:fldSimple w:instr='X'>{run('Bo')}</w:fldSimple></w:hyperlink>",
        "Bo",
    ),
    "hidden": (run("secret", "<w:vanish/>") + run("open", '<w:vanish w:val="0"/>'), "open"),
    "hidden by style": (run("secret", '<w:rStyle w:val="V"/>') + run("open"), "open"),
    "hidden by a style's base": (
        run("secret", '<w:rStyle w:val="Below"/>') + run("open", '<w:rStyle w:val="Loop"/>'),
        "open",
    ),
    "text box": (
        f"<w:r><mc:AlternateContent {CHOICE}><mc:Choice><w:drawing><w:txbxContent>"
        f"{paragraph('boxed.')}</w:txbxContent></w:drawing></mc:Choice></mc:AlternateContent></w:r>",
        "boxed.",
    ),
    "text box once": (
        f"<w:r><mc:AlternateContent {CHOICE}><mc:Choice><w:drawing><w:txbxContent>"
        f"{paragraph('boxed.')}</w:txbxContent></w:drawing></mc:Choice><mc:Fallback><w:pict>"
        f"<w:txbxContent>{paragraph('boxed.')}</w:txbxContent></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>",
        "boxed.",
    ),
}


@pytest.mark.parametrize(("inner", "shown"), SHOWN.values(), ids=SHOWN.keys())
def test_text_is_read_where_word_shows_it(
    inner: str, shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = docx(f"<w:p>{run('Dear ')}{inner}{run(' writes.')}</w:p>")
    found = " ".join(text.removeprefix("file, ") for _, text in read(tmp_path, content))
    expected = ["Dear", *shown.split(), "writes."]
    assert sorted(found.split()) == sorted(expected)
    assert not caplog.records


def test_what_is_not_read_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unknown = f"<w:novel>{run('Lost.')}</w:novel><w:proofErr2/>"
    read(tmp_path, docx(f"<w:p>{run('Kept.')}{unknown}</w:p>"))
    assert [r.getMessage() for r in caplog.records] == [
        f"{tmp_path}/file.docx: text was not read in: novel"
    ]
    caplog.clear()
    read(tmp_path, docx(paragraph("Kept.") + '<w:altChunk w:id="a"/>'))
    assert [r.getMessage() for r in caplog.records] == [
        f"{tmp_path}/file.docx: text was not read in: altChunk"
    ]


def test_a_hidden_row_is_not_read(tmp_path: Path) -> None:
    shown = two_columns([["*Name", "*City"], ["Anna", "Oslo"], ["Bo", "Lima"]])
    assert [text for _, text in read(tmp_path, docx(shown))][-1] == "file, Name is Bo, City is Lima"
    start = shown.rindex("<w:tr>") + len("<w:tr>")
    hidden = f"{shown[:start]}<w:trPr><w:hidden/></w:trPr>{shown[start:]}"
    assert [text for _, text in read(tmp_path, docx(hidden))] == [
        "file, Name is Anna, City is Oslo"
    ]


FORMS = {
    "colons": [["Name:", "Anna Berg"], ["City:", "Oslo"]],
    "one colon": [["Name:", "Anna Berg"], ["City", "Oslo"]],
    "bold": [["*Name", "Anna Berg"], ["*City", "Oslo"]],
    "kinds": [["Name", "Anna Berg"], ["Sum", "900 euros"], ["Due", "1 May 2024"]],
    "words": [["Name", "Anna Berg"], ["City", "Oslo"], ["Email", "anna@example.org"]],
    "one amount": [["Project", "Bridge"], ["Manager", "Bo Olsen"], ["Budget", "900 euros"]],
}
LISTS = {
    "bold": [["*Name", "*City"], ["Anna Berg", "Oslo"]],
    "bold above a bold label": [["*Name", "*City"], ["*Anna Berg", "Oslo"]],
    "units": [["Ship", "Length"], ["Aurora", "41 m"], ["Bris", "1,042 m"], ["Cora", "unknown"]],
    "years": [["City", "2020"], ["Oslo", "693,494"], ["Lima", "9,751,717"]],
}


def two_columns(rows: list[list[str]]) -> str:
    made = table(*([cell.removeprefix("*") for cell in row] for row in rows))
    for cell in (cell[1:] for row in rows for cell in row if cell[0] == "*"):
        plain = f'<w:r><w:t xml:space="preserve">{cell}</w:t></w:r>'
        made = made.replace(plain, run(cell, "<w:b/>"))
    return made


@pytest.mark.parametrize("rows", FORMS.values(), ids=FORMS.keys())
def test_a_form_is_read_as_fields(rows: list[list[str]], tmp_path: Path) -> None:
    expected = [("infobox", f"file, {label.strip('*:')}, {value}") for label, value in rows]
    assert read(tmp_path, docx(two_columns(rows))) == expected


@pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS.keys())
def test_a_table_with_a_header_is_no_form(rows: list[list[str]], tmp_path: Path) -> None:
    assert {source for source, _ in read(tmp_path, docx(two_columns(rows)))} == {"table"}


UNREADABLE = {
    "no zip": (b"hello", "broken Word file"),
    "encrypted": (bytes.fromhex("D0CF11E0A1B11AE1") + bytes(600), "encrypted, or in the format"),
    "another zip": (without_document(), "broken Word file"),
    "cut": (docx(paragraph("Lima."))[:-30], "broken Word file"),
    "broken XML": (docx("<w:p>"), "broken Word file"),
    "nothing": (docx(""), "nothing to read in it"),
    "deep": (docx(deep(3000)), "broken Word file: RecursionError"),
    "entities": (docx(paragraph("&e9;"), doctype=entities()), "broken Word file: its XML"),
    "bomb": (docx(paragraph(" " * (33 << 20))), "too large: its texts unpack to more than 32 MiB"),
}


@pytest.mark.parametrize(("content", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path}/file.docx: {message}")


def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(*_: object, **__: object) -> bytes:
        raise AssertionError("unpacked")

    content = docx(paragraph("a" * 2000))
    monkeypatch.setattr(zipfile.ZipFile, "read", unpack)
    monkeypatch.setattr(module, "MAX_XML_BYTES", 1000)
    with pytest.raises(Unreadable, match="too large"):
        read(tmp_path, content)
