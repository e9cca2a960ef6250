"""Rewrites the XML of a Word file, so that mammoth reads all of its text that is shown."""

from __future__ import annotations

import io
import zipfile
from collections import deque
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_TEXTS = ("document", "footnotes", "endnotes")
"""Root elements of the parts with a file's text."""
_UNWRAPPED = {"fldSimple", "dir", "bdo", "ruby", "rubyBase", "oMathPara"}
"""Elements that mammoth does not know, in place of which their content is read."""
_LEFT_OUT = {"rt", "rubyPr", "fldData"}
_SIGNS = {"den": "/", "sup": "^", "sub": "_", "rad": "√", "nary": "∫"}
"""What stands before a part of an equation in a line of text; a file may name another sign."""
_OFF = ("0", "false", "off")


def shown_text(raw: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a Word file in which simple fields, equations and the like are plain runs.

    Hidden text is removed. Text boxes stand in the form of older versions of Word.

    Args:
        raw: a file whose parts define no entities.

    Returns:
        The file, and the text in it by its elements' names, without their prefix.
    """
    out, texts = io.BytesIO(), dict[str, str]()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(out, "w") as written:
        parts = {part: archive.read(part) for part in archive.namelist()}
        trees = {part: _tree(content) for part, content in parts.items()}
        styles = [tree for tree in trees.values() if tree is not None and _name(tree) == "styles"]
        hidden = {id_ for tree in styles for id_ in _hidden_styles(tree)}
        for part, content in parts.items():
            tree = trees[part]
            if tree is not None and _name(tree) in _TEXTS:
                _rewrite(tree, hidden)
                for element in tree.iter():
                    if not texts.get(name := _name(element)):
                        texts[name] = "".join(element.itertext()).strip()
                    if name == "altChunk":  # its text is another part
                        texts[name] = name
                content = ElementTree.tostring(tree, "utf-8", xml_declaration=True)
            written.writestr(part, content)
    return out.getvalue(), texts


def _tree(content: bytes) -> Element | None:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:  # an image, or a part that mammoth will say is broken
        return None


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _name(element: Element) -> str:
    return _local(element.tag)


def _child(element: Element, *names: str) -> Element | None:
    """Return the element at a path of names, whatever their namespace."""
    child: Element | None = element
    for name in names:
        child = next((c for c in ([] if child is None else child) if _name(c) == name), None)
    return child


def _value(element: Element | None) -> str:
    if element is None:
        return ""
    return next((v for key, v in element.items() if _local(key) == "val"), "")


def _is_on(element: Element | None) -> bool:
    return element is not None and _value(element).lower() not in _OFF


def _hidden_styles(styles: Element) -> Iterator[str]:
    by_id = {
        value: style for style in styles for key, value in style.items() if _local(key) == "styleId"
    }
    for id_ in by_id:
        style, passed = by_id[id_], set[str]()
        while (vanish := _child(style, "rPr", "vanish")) is None:  # as in its base
            above = _value(_child(style, "basedOn"))
            if above in passed or above not in by_id:
                break
            passed.add(above)
            style = by_id[above]
        if _is_on(vanish):
            yield id_


def _rewrite(root: Element, hidden: set[str]) -> None:
    """Rewrite the descendants of an element in place, the outer ones first."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        children, kept = deque(element), list[Element]()
        while children:
            child = children.popleft()
            name = _name(child)
            if name in _UNWRAPPED:
                children.extendleft(reversed(child))
            elif name == "AlternateContent":
                children.extendleft(reversed(_choice(child)))
            elif name == "oMath":
                kept.append(_run(child, root))
            elif name == "drawing" and (boxes := _inside(child, "txbxContent")):
                kept.append(_element(root, "pict", boxes))
            elif name not in _LEFT_OUT and not _is_hidden(child, hidden):
                kept.append(child)
        if kept != list(element):
            text, tail = element.text, element.tail
            attributes = dict(element.items())
            element.clear()
            element.text, element.tail = text, tail
            element.attrib.update(attributes)
            element.extend(kept)
        waiting += kept


def _is_hidden(element: Element, styles: set[str]) -> bool:
    if _name(element) == "r":
        vanish = _child(element, "rPr", "vanish")
        if vanish is not None:
            return _is_on(vanish)
        return _value(_child(element, "rPr", "rStyle")) in styles
    if _name(element) == "tr":
        return _is_on(_child(element, "trPr", "hidden"))
    return _name(element) == "p" and _value(_child(element, "pPr", "pStyle")) in styles


def _choice(alternatives: Element) -> list[Element]:
    """Return the content to read: of the last alternative with text, which any Word reads."""
    for alternative in reversed(alternatives):
        if "".join(alternative.itertext()).strip():
            return list(alternative)
    return [child for alternative in alternatives for child in alternative][-1:]


def _inside(element: Element, name: str) -> list[Element]:
    return [inner for inner in element.iter() if _name(inner) == name]


def _element(root: Element, name: str, children: list[Element]) -> Element:
    """Return an element in the namespace of Word's own."""
    made = Element(root.tag.rpartition("}")[0] + "}" + name)
    made.extend(children)
    return made


def _linear(equation: Element) -> Iterator[str]:
    """Yield an equation's text, with a sign before each part that is more than its text."""
    for part in equation.iter():
        if _name(part) == "t":
            yield part.text or ""
        elif _name(part) in _SIGNS:
            yield _value(_child(part, "naryPr", "chr")) or _SIGNS[_name(part)]


def _run(equation: Element, root: Element) -> Element:
    """Return an equation as a run of its text."""
    text = _element(root, "t", [])
    text.text = "".join(_linear(equation))
    return _element(root, "r", [text])
