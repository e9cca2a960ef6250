"""Decodes text files: UTF-8, what a byte order mark says, or a legacy encoding that is detected.

A file is refused where no guess is safe: text in a wrong encoding would be wrong evidence.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from turngraph.data.sources.document import Unreadable, documents_extra

_BOMS = {  # those of UTF-32 begin with those of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_WINDOWS = {  # what adds letters to an ISO encoding where that has control characters
    "iso8859-1": "cp1252",
    "iso8859-2": "cp1250",
    "iso8859-7": "cp1253",
    "iso8859-8": "cp1255",
    "iso8859-9": "cp1254",
    "iso8859-13": "cp1257",
}
_ENCODINGS = {
    *_WINDOWS,
    *_WINDOWS.values(),
    *"cp1251 cp1256 cp1258 cp874 cp949 koi8-r koi8-u iso8859-5 iso8859-15 iso8859-16".split(),
    *"shift_jis cp932 euc_jp iso2022_jp gb2312 gbk gb18030 big5 big5hkscs euc_kr".split(),
}
"""Encodings that are accepted. Those of DOS and old Macintoshes are not: they are mistaken for each
other."""
_BELIEVED = {codecs.lookup(name).name for name in _ENCODINGS}
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_C1_CONTROLS = re.compile("[\x80-\x9f]")
_UTF16_ZEROS = 0.3  # share of bytes that are 0 in every second place of a text in Latin letters


def decode(raw: bytes, path: Path, is_html: bool = False) -> tuple[str, str]:
    """Return the text of a file, and the encoding it was read with.

    Args:
        raw: content of the file.
        path: its name, for messages.
        is_html: use the charset that the page declares.

    Raises:
        Unreadable: the content is no text, or its encoding is not known.
    """
    encoding = next((name for mark, name in _BOMS.items() if raw.startswith(mark)), None)
    encoding = encoding or _utf16_without_mark(raw)
    text = None if encoding else _decoded(raw, "utf-8")
    if text is None:
        encoding = encoding or _legacy(raw, path, is_html)
        text = _decoded(raw, encoding)
    if text is None:
        raise Unreadable(path, f"not {encoding}, although its first bytes say so")
    if _CONTROLS.search(text):
        raise Unreadable(path, "binary data, no text")
    return text, encoding or "utf-8"


def _decoded(raw: bytes, encoding: str) -> str | None:
    try:
        return raw.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def _utf16_without_mark(raw: bytes) -> str | None:
    """Return the byte order of UTF-16 in mostly Latin letters; None if it is something else."""
    half = len(raw) // 2
    if not half or len(raw) % 2:
        return None
    zeros = [raw[start::2].count(0) / half for start in (0, 1)]
    if max(zeros) < _UTF16_ZEROS or min(zeros) > 0:
        return None
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def _legacy(raw: bytes, path: Path, is_html: bool) -> str:
    _check_not_broken_utf8(raw, path)
    if b"\0" in raw:
        raise Unreadable(path, "binary data, no text")
    if is_html and (declared := _declared(raw)) is not None:
        return declared
    with documents_extra(path, "texts that are not UTF-8"):
        from resiliparse.parse.encoding import detect_encoding
    encoding = _believed(detect_encoding(raw, html5_compatible=False) or "")
    text = _decoded(raw, encoding)
    if text is not None and _C1_CONTROLS.search(text) and encoding in _WINDOWS:
        encoding = _WINDOWS[encoding]
        text = _decoded(raw, encoding)
    if text is None or _C1_CONTROLS.search(text):
        raise Unreadable(path, "neither UTF-8 nor another encoding that can be recognised")
    return encoding


def _declared(raw: bytes) -> str | None:
    """Return the charset that a page declares in its head, if it is in that charset."""
    matched = re.search(
        rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", raw[:4096], re.IGNORECASE
    )
    if matched is None:
        return None
    name = _believed(matched[1].decode("ascii"))
    name = _WINDOWS.get(name, name)  # as browsers do
    return name if _decoded(raw, name) is not None else None


def _believed(name: str) -> str:
    """Return Python's name of an encoding; "" if it is unknown or not accepted."""
    try:
        encoding = codecs.lookup(name).name
    except LookupError:
        return ""
    return encoding if encoding in _BELIEVED else ""


def _check_not_broken_utf8(raw: bytes, path: Path) -> None:
    """Refuse UTF-8 with single wrong bytes: read in another encoding, the rest would be wrong.

    Raises:
        Unreadable: more characters beyond ASCII are right than wrong.
    """
    text = raw.decode("utf-8", "replace")
    wrong = text.count("�")
    right = sum(char > "\x7f" for char in text) - wrong
    if right <= wrong:
        return
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable(path, "broken UTF-8", f"at byte {error.start + 1}", line) from None
