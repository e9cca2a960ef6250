"""Text files that are not UTF-8: read in their encoding, or named as unreadable, never garbled."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from turngraph.data.sources.document import Unreadable
from turngraph.data.sources.readers import read_document
from turngraph.data.sources.text_encoding import decode

LEGACY = {
    "German": ("cp1252", "Die Straße führt über die Brücke. Käse kostet 3 € und Äpfel sind grün."),
    "Spanish": ("latin-1", "El niño comió una manzana en la estación. Mañana volverá a su pueblo."),
    "French": ("cp1252", "L’été dernier, la rivière était à sec. Où est passée l’eau ?"),
    "English": ("cp1252", "The café doesn’t open before nine. “We bake late,” says the owner."),
    "table": ("cp1252", "Name;Ort\nMüller;Köln\nJörg;Ulm\n"),
    "Russian": ("cp1251", "Мост через реку был построен до войны, и по нему ходят поезда."),
    "Russian KOI": ("koi8-r", "Мост через реку был построен до войны, и по нему ходят поезда."),
    "Greek": ("cp1253", "Η γέφυρα χτίστηκε πριν από τον πόλεμο. Σήμερα περνούν τρένα."),
    "Polish": (
        "cp1250",
        "Żółta łódź płynie po Wiśle do Gdańska. Most został zbudowany przed wojną.",
    ),
    "Czech": ("cp1250", "Příliš žluťoučký kůň šel přes most, který byl postaven před válkou."),
    "Polish ISO": (
        "iso8859-2",
        "Żółta łódź płynie po Wiśle do Gdańska. Dziś jeżdżą po nim pociągi.",
    ),
    "Turkish": (
        "cp1254",
        "İstanbul kalabalık şehridir. Köprü savaştan önce yapıldı. Şimdi çocuklar.",
    ),
    "Japanese": ("shift_jis", "東京は日本の首都です。橋は戦争の前に作られました。"),
    "Chinese": ("gbk", "北京是中国的首都。这座桥建于战前，现在有火车通过。"),
    "Taiwan": ("big5", "台北是台灣的首都。這座橋建於戰前，現在有火車通過。"),
    "Korean": ("euc-kr", "서울은 대한민국의 수도이다. 다리는 전쟁 전에 지어졌다."),
    "Hebrew": ("cp1255", "הגשר נבנה לפני המלחמה והיום עוברות בו רכבות."),
}
TEXT = "Lima is the capital of Peru – “old”.\nOslo.\n"


@pytest.mark.parametrize(("encoding", "text"), LEGACY.values(), ids=LEGACY.keys())
def test_a_legacy_encoding_is_detected(encoding: str, text: str) -> None:
    found, name = decode(text.encode(encoding), Path("a.txt"))
    assert found == text
    assert name != "utf-8"


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (TEXT.encode(), "utf-8"),
        (b"", "utf-8"),
        (codecs.BOM_UTF8 + TEXT.encode(), "utf-8-sig"),
        (TEXT.encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16"),
        (TEXT.encode("utf-32"), "utf-32"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_unicode_with_and_without_its_mark(raw: bytes, encoding: str) -> None:
    assert decode(raw, Path("a.txt")) == (TEXT if raw else "", encoding)


BAD = {
    "wrong byte": (
        "né à Évian, où\n".encode() * 3 + b"na\xefve",
        "a.txt, line 4: broken UTF-8: at",
    ),
    "binary": (bytes(range(256)), "a.txt: binary data, no text"),
    "null": (b"text\0text", "a.txt: binary data, no text"),
    "control": (b"\x1f\x8b\x08 text", "a.txt: "),
    "cut UTF-16": (codecs.BOM_UTF16_LE + b"a\0b", "a.txt: not utf-16, although its first"),
    "old Macintosh": (
        "Die Straße führt über die Brücke.".encode("mac_roman"),
        "a.txt: neither UTF-8",
    ),
    "DOS": ("Die Straße führt über die Brücke.".encode("cp437"), "a.txt: neither UTF-8"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_told_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode(raw, Path("a.txt"))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("windows-1251", "cp1251"),
        ("iso-8859-1", "cp1252"),
        ("utf-8", ""),
        ("unicode_escape", ""),
        ("rubbish", ""),
    ],
)
def test_the_charset_of_a_page_is_believed_if_it_is_one(declared: str, encoding: str) -> None:
    raw = f'<meta charset="{declared}"><p>Gr\xfc\xdfe an M\xfcller in K\xf6ln.</p>'.encode(
        "latin-1"
    )
    text, found = decode(raw, Path("a.html"), is_html=True)
    assert text == raw.decode(encoding or "cp1252")
    assert found == encoding or not encoding
    assert decode(raw, Path("a.txt"))[0] == raw.decode("cp1252")


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.html"])
def test_every_text_format_is_decoded(tmp_path: Path, name: str) -> None:
    text = "Name;Town\nJörg Müller;Köln\n" if name == "a.csv" else "Jörg Müller lives in Köln."
    for encoding in ("utf-16", "cp1252"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        read = read_document(tmp_path / name)
        assert read.encoding is not None
        assert "Jörg Müller" in read.passages[0].text
