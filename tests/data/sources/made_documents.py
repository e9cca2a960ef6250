"""PDF and Word files made by hand, byte for byte."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

FONT = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
CONTENT = "http://schemas.openxmlformats.org/package/2006/"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def pdf(objects: Sequence[str | bytes], info: int | None = None) -> bytes:
    """Return a PDF file of numbered objects; the first is its catalogue."""
    out, offsets = io.BytesIO(), []
    out.write(b"%PDF-1.7\n")
    for number, made in enumerate(objects, 1):
        offsets.append(out.tell())
        body = made if isinstance(made, bytes) else made.encode("cp1252")
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    at = out.tell()
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table))
    title = b" /Info %d 0 R" % info if info else b""
    out.write(b"trailer\n<</Size %d /Root 1 0 R%s>>\n" % (len(objects) + 1, title))
    out.write(b"startxref\n%d\n%%%%EOF" % at)
    return out.getvalue()


def stream(data: str | bytes, entries: str = "") -> bytes:
    """Return a stream object of a PDF file."""
    raw = data if isinstance(data, bytes) else data.encode("cp1252")
    return f"<</Length {len(raw)} {entries}>>\nstream\n".encode() + raw + b"\nendstream"


def pdf_of_texts(texts: Sequence[str], title: str = "") -> bytes:
    """Return a PDF file with one page for each text."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(texts)))
    objects: list[str | bytes] = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(texts)}/Kids[{kids}]>>",
        FONT,
    ]
    for index, text in enumerate(texts):
        lines = "".join(f"({line}) Tj T* " for line in text.split("\n"))
        objects.append(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]"
            f"/Resources<</Font<</F1 3 0 R>>>>/Contents {5 + 2 * index} 0 R>>"
        )
        objects.append(stream(f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"))
    if title:
        objects.append(f"<</Title ({title})>>")
    return pdf(objects, info=len(objects) if title else None)


def pdf_of_lines(*pages: Sequence[tuple[int, str]]) -> bytes:
    """Return a PDF file of lines, each with the size of its letters, which is negative for bold."""
    kids = " ".join(f"{5 + 2 * i} 0 R" for i in range(len(pages)))
    objects: list[str | bytes] = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>",
        FONT,
        FONT.replace("Helvetica", "Helvetica-Bold"),
    ]
    for index, page in enumerate(pages):
        lines = "".join(
            f"/F{2 if size < 0 else 1} {abs(size)} Tf ({line}) Tj T* " for size, line in page
        )
        objects.append(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]"
            f"/Resources<</Font<</F1 3 0 R/F2 4 0 R>>>>/Contents {6 + 2 * index} 0 R>>"
        )
        objects.append(stream(f"BT 30 TL 72 720 Td {lines} ET"))
    return pdf(objects)


def pdf_of_places(places: Sequence[tuple[int, int, str]]) -> bytes:
    """Return a PDF file of one page that draws texts at places, x and y, in this order."""
    texts = "".join(f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET " for x, y, text in places)
    entries = "/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R"
    return pdf_of_page(entries, FONT, stream(texts))


def pdf_of_page(page: str, *objects: str | bytes) -> bytes:
    """Return a PDF file of one page with these entries, and objects from number 4 on."""
    return pdf(
        [
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Count 1/Kids[3 0 R]>>",
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]{page}>>",
            *objects,
        ]
    )


def docx(body: str, core: str = "", doctype: str = "") -> bytes:
    """Return a Word file; ``core`` are its properties, ``doctype`` stands before its body."""
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{CONTENT}content-types"><Default Extension="xml" '
        'ContentType="application/xml"/><Override PartName="/word/document.xml" '
        f'ContentType="{MAIN}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{CONTENT}relationships"><Relationship Id="r1" '
        f'Type="{OFFICE}" Target="word/document.xml"/></Relationships>',
        "word/styles.xml": f"<w:styles {W}>{_style('H', 'heading 2')}{_style('T', 'Title')}"
        '<w:style w:type="character" w:styleId="V"><w:rPr><w:vanish/></w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="Below"><w:basedOn w:val="V"/></w:style>'
        '<w:style w:type="character" w:styleId="Loop"><w:basedOn w:val="Loop"/></w:style>'
        "</w:styles>",
        "word/document.xml": f"{doctype}<w:document {W}><w:body>{body}</w:body></w:document>",
    }
    if core:
        parts["docProps/core.xml"] = core
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def _style(name: str, shown: str) -> str:
    return f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{shown}"/></w:style>'


def paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of a Word file; style T is the title, H a heading."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def table(*rows: Sequence[str]) -> str:
    """Return a table of a Word file; ``2*text`` spans two columns."""
    lines = []
    for row in rows:
        cells = ""
        for text in row:
            wide = '<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' if text.startswith("2*") else ""
            cells += f"<w:tc>{wide}{paragraph(text.removeprefix('2*'))}</w:tc>"
        lines.append(f"<w:tr>{cells}</w:tr>")
    return f"<w:tbl>{''.join(lines)}</w:tbl>"
