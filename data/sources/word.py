"""Turns a Word file (.docx) into HTML, by mammoth: headings, lists, tables, notes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from selectolax.lexbor import LexborHTMLParser, LexborNode

from turngraph.data.normalise import parse_date
from turngraph.data.sources.document import Unreadable, documents_extra, shown
from turngraph.data.sources.word_xml import shown_text
from turngraph.data.warned import reading_logger

logger = reading_logger(__name__)

MAX_XML_BYTES = 32 << 20
"""Largest unpacked size of a file's texts; a small file may unpack to any size."""
_OLE = bytes.fromhex("D0CF11E0A1B11AE1")  # how encrypted files and those of old versions begin
_STYLES = """\
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
table => table.wikitable:fresh
"""
"""mammoth's style map. The class makes a table's first row its header, as in Markdown and CSV."""
_IGNORED = re.compile(r"An unrecognised element was ignored: (?:.*[:}])?(.*)")
"""mammoth's message about an element that it ignores; the group is the element's name."""
_UNIT = re.compile(r"[\d.,\s+−–-]")
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_word(raw: bytes, path: Path) -> tuple[LexborHTMLParser, str]:
    """Return a Word file as a tree of HTML, and its title, "" if it has none.

    Deleted and hidden text, comments, headers and footers, and images are left out. A warning
    names the elements with text that are not read.

    Raises:
        Unreadable: the file is broken, encrypted, too large, or of another kind.
    """
    with documents_extra(path, "Word files"):
        import mammoth
    if raw.startswith(_OLE):
        raise Unreadable(path, "encrypted, or in the format of an old version")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            parts = _texts(archive, path)
            title = _title(parts.get("docProps/core.xml"))
        raw, texts = shown_text(_archive_of(parts))
        converted = mammoth.convert_to_html(
            io.BytesIO(raw),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
        )
    except Unreadable:
        raise
    except Exception as error:  # mammoth raises whatever a broken file leads to
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise Unreadable(path, "broken Word file", detail) from None
    unread = {match[1] for one in converted.messages if (match := _IGNORED.fullmatch(one.message))}
    if unread := {name for name in unread if texts.get(name)}:
        logger.warning("%s: text was not read in: %s", shown(path), ", ".join(sorted(unread)))
    tree = LexborHTMLParser(converted.value)
    for box in tree.css("input[type=checkbox]"):
        box.replace_with("☒" if "checked" in box.attrs else "☐")
    for table in tree.css("table.wikitable"):
        if _is_form(table):
            table.attrs["class"] = "infobox"
    heading = tree.css_first("h1")
    return tree, (heading and " ".join(heading.text().split())) or title


def _is_form(table: LexborNode) -> bool:
    """Tell whether a table of two columns has a label and a value in each row.

    Its first row is a header where its two cells are bold, and where several values are amounts in
    one unit, or dates. Without such a sign the rows are read as fields: of a list, this loses the
    names of its columns; the other way round a form would say what is not so.
    """
    rows = [[cell for cell in row.iter() if cell.tag == "td"] for row in table.css("tr")]
    if table.css_first("th, td table") is not None or any(len(row) != 2 for row in rows):
        return False
    if any(label.text().strip().endswith(":") for label, _ in rows):
        return True
    bold = [[cell.css_first("strong") is not None for cell in row] for row in rows]
    if all(of_label for of_label, _ in bold):
        return not any(of_value for _, of_value in bold)
    values = [" ".join(value.text().split()) for _, value in rows]
    counted = [value for value in values if re.search(r"\d", value)]
    kinds = {"date" if parse_date(value) else _UNIT.sub("", value) for value in counted}
    return not all(bold[0]) and (len(counted) < 2 or len(kinds - {""}) > 1)


def _texts(archive: zipfile.ZipFile, path: Path) -> dict[str, bytes]:
    """Unpack the parts that hold text; refuse large and encrypted files, and XML entities."""
    parts = [part for part in archive.infolist() if part.filename.endswith((".xml", ".rels"))]
    if sum(part.file_size for part in parts) > MAX_XML_BYTES:
        detail = f"its texts unpack to more than {MAX_XML_BYTES >> 20} MiB"
        raise Unreadable(path, "too large", detail)
    if any(part.flag_bits & 1 for part in archive.infolist()):
        raise Unreadable(path, "encrypted: a password is needed")
    texts = {part.filename: archive.read(part) for part in parts}
    if any(b"<!DOCTYPE" in text.replace(b"\0", b"") for text in texts.values()):
        raise Unreadable(path, "broken Word file", "its XML defines entities")
    return texts


def _archive_of(texts: Mapping[str, bytes]) -> bytes:
    """Return an archive of these parts alone: mammoth unpacks whatever a relationship names."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return made.getvalue()


def _title(properties: bytes | None) -> str:
    if properties is None:
        return ""
    return " ".join((ElementTree.fromstring(properties).findtext(_TITLE) or "").split())
