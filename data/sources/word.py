"""Turns a Word file (.docx) into HTML, by mammoth: headings, lists, tables, notes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from selectolax.lexbor import LexborHTMLParser

from turngraph.data.sources.document import Unreadable, documents_extra

MAX_XML_BYTES = 32 << 20
"""Unpacked size of the texts of the largest file; a small file may claim to unpack to any size."""
_DOCTYPE_WITHIN = 1 << 16
_OLE = bytes.fromhex("D0CF11E0A1B11AE1")  # how encrypted files and those of old versions begin
_STYLES = """\
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
table => table.wikitable:fresh
"""
"""With its class, the first row of a table is its header, as in Markdown and CSV."""
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_word(raw: bytes, path: Path) -> tuple[LexborHTMLParser, str]:
    """Return a Word file as a tree of HTML, and its title, "" if it has none.

    Deleted text, comments, headers and footers, and images are left out.

    Raises:
        Unreadable: the file is broken, encrypted, too large, or of another kind.
    """
    with documents_extra(path, "Word files"):
        import mammoth
    if raw.startswith(_OLE):
        raise Unreadable(path, "encrypted, or in the format of an old version")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            _check(archive, path)
            title = _title(archive)
        html = mammoth.convert_to_html(
            io.BytesIO(raw),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
        ).value
    except Unreadable:
        raise
    except Exception as error:  # mammoth raises whatever a broken file leads to
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise Unreadable(path, "broken Word file", detail) from None
    tree = LexborHTMLParser(html)
    heading = tree.css_first("h1")
    return tree, (heading and " ".join(heading.text().split())) or title


def _check(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse what unpacks to too much, or needs a password, before it is unpacked."""
    texts = [part for part in archive.infolist() if part.filename.endswith((".xml", ".rels"))]
    if sum(part.file_size for part in texts) > MAX_XML_BYTES:
        detail = f"its texts unpack to more than {MAX_XML_BYTES >> 20} MiB"
        raise Unreadable(path, "too large", detail)
    if any(part.flag_bits & 1 for part in archive.infolist()):
        raise Unreadable(path, "encrypted: a password is needed")
    for part in texts:
        with archive.open(part) as opened:
            if b"<!DOCTYPE" in opened.read(_DOCTYPE_WITHIN).replace(b"\0", b""):
                raise Unreadable(path, "broken Word file", "it defines entities of its own")


def _title(archive: zipfile.ZipFile) -> str:
    if "docProps/core.xml" not in archive.namelist():
        return ""
    found = ElementTree.fromstring(archive.read("docProps/core.xml")).findtext(_TITLE)
    return " ".join((found or "").split())
