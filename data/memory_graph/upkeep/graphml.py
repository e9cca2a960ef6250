"""Export of a memory graph as GraphML, for networkx, Gephi and others."""

from __future__ import annotations

import re
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from turngraph.configs.progress import track
from turngraph.data.memory_graph.memory_types import EDGE_TYPES, NODE_TYPES
from turngraph.data.memory_graph.record.database import Database
from turngraph.data.outputs import whole_file

if TYPE_CHECKING:
    from turngraph.data.memory_graph.record.store import Store

_FIXED = {"node": ("id",), "edge": ("id", "source", "target")}
GRAPHML = {
    "node": "SELECT n.id, n.type, n.text, n.said, n.valid_from, n.valid_to, n.hypothesis,"
    " e.source, e.speaker, (SELECT json_group_array(spelling) FROM aliases WHERE node = n.id)"
    " AS aliases FROM nodes n LEFT JOIN episodes e ON e.node = n.id ORDER BY n.id",
    "edge": "SELECT id, source, target, type, relation, said, valid_from, valid_to, hypothesis"
    " FROM edges ORDER BY id",
}
"""Query for the elements of each kind: columns of XML attributes (``_FIXED``), then of data."""
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def export_graphml(store: Store, path: str | Path) -> int:
    """Write the nodes and edges of the last commit, and return their number.

    Aliases, sources and speakers are attributes of nodes; episodic edges show the provenance.
    Control characters, which XML does not allow, become U+FFFD.

    Raises:
        UserError: the file cannot be written; no partial file is left.
    """
    with store.reading(), whole_file(path, True) as file:
        xml = XMLGenerator(cast(TextIOBase, file), encoding="utf-8", short_empty_elements=True)
        xml.startDocument()
        _start(xml, "graphml", {"xmlns": "http://graphml.graphdrawing.org/xmlns"})
        for owner, query in GRAPHML.items():
            for name in _columns(store.db, query)[len(_FIXED[owner]) :]:
                attributes = {"id": f"{owner}_{name}", "for": owner, "attr.name": name}
                kind = "boolean" if name == "hypothesis" else "string"
                _start(xml, "key", attributes | {"attr.type": kind})
                xml.endElement("key")
        _start(xml, "graph", {"id": "memory", "edgedefault": "directed"})
        count = sum(
            _write_elements(xml, store.db, owner, query) for owner, query in GRAPHML.items()
        )
        xml.endElement("graph")
        xml.endElement("graphml")
        xml.endDocument()
    return count


def _start(xml: XMLGenerator, name: str, attributes: dict[str, str]) -> None:
    xml.startElement(name, AttributesImpl(attributes))


def _columns(db: Database, query: str) -> list[str]:
    return [column[0] for column in db.execute(f"{query} LIMIT 0").description]


def _write_elements(xml: XMLGenerator, db: Database, owner: str, query: str) -> int:
    fixed, names = _FIXED[owner], _columns(db, query)
    types = NODE_TYPES if owner == "node" else EDGE_TYPES
    count = 0
    for row in track(db.execute(query), "export", f"{owner}s", delay=2, leave=False):
        values = dict(zip(names, row, strict=True)) | {"type": types[row[names.index("type")]]}
        _start(xml, owner, {name: str(values.pop(name)) for name in fixed})
        for name, value in values.items():
            if value is not None and value != "[]" and (name != "hypothesis" or value):
                _start(xml, "data", {"key": f"{owner}_{name}"})
                xml.characters("true" if name == "hypothesis" else _NOT_XML.sub("\ufffd", value))
                xml.endElement("data")
        xml.endElement(owner)
        count += 1
    return count
