"""Renders the explanation of a conversation as one HTML page that needs no network.

The page holds all its text as HTML and reads whole without a script. The scripts in
``explain_files`` add the choice of a turn, the highlights, and the graph, drawn by Cytoscape.js,
which is vendored whole.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from turngraph.configs.words import plural
from turngraph.data.json_fields import Json
from turngraph.data.outputs import whole_file
from turngraph.data.retrieval.evidence_memory import MemoryMode
from turngraph.data.scoring.explanation import (
    DroppedPassage,
    ExplainedPassage,
    ExplainedTurn,
    Explanation,
    Origin,
    PassageEdge,
    origin_words,
)
from turngraph.data.scoring.metrics import exact_match
from turngraph.data.types import LIST_SEPARATOR, Answer

SCRIPTS = ("cytoscape.min.js", "graph.js", "page.js")
# Cytoscape looks for a style element of this id before it makes one, which the policy forbids.
CYTOSCAPE_STYLE = {
    "__________cytoscape_stylesheet": ".__________cytoscape_container { position: relative; }"
}
REASONS = {"budget": "did not fit into the prompt", "memory": "gave way to a passage from memory"}
ORIGINS: dict[Origin, str] = {
    "new": "found for this question",
    "memory": "from earlier turns",
    "remembered": "from the memory graph",
}
MAX_LABEL = 32
SHOWN_JOINS = 6


def write_explain_page(record: Explanation, path: str | Path) -> None:
    """Write the page of a conversation; the same record gives the same bytes.

    Args:
        record: the answers and the influence of the evidence on each.
        path: path of the HTML file.

    Raises:
        UserError: the file cannot be written; no partial file is left.
    """
    text = explain_page(record)
    with whole_file(path) as file:
        file.write(text)


def explain_page(record: Explanation) -> str:
    """Return the HTML of a conversation's page."""
    scripts = [_read(name) for name in SCRIPTS]
    styles = {"style": _read("page.css")} | CYTOSCAPE_STYLE
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_read("page.html")).render(
        record=record,
        turns=[_turn(turn, record.memory) for turn in record.turns],
        graphs=[_graph(turn) if turn.edges else None for turn in record.turns],
        shown_joins=SHOWN_JOINS,
        styles=styles,
        style_hashes=_hashes(styles.values()),
        scripts=scripts,
        script_hashes=_hashes(scripts),
    )


def _read(name: str) -> str:
    return (files("turngraph.data.scoring") / "explain_files" / name).read_text(encoding="utf-8")


def _hashes(texts: Iterable[str]) -> str:
    """Return the sources of a content security policy that allows only these inline texts."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


def _turn(turn: ExplainedTurn, memory: MemoryMode) -> Json:
    """Return the page's data of one turn."""
    order, entities = _order(turn), _entities(turn)
    largest = max((passage.share for passage in turn.passages), default=0.0)
    return {
        "number": turn.index + 1,
        "question": turn.question,
        "answer": turn.answer,
        "gold": LIST_SEPARATOR.join(turn.gold),
        "verdict": _verdict(turn),
        "withheld": turn.withheld,
        "probability": "" if turn.logprob is None else _percent(math.exp(turn.logprob)),
        "logprob": "" if turn.logprob is None else _signed(turn.logprob),
        "summary": _summary(turn),
        "passages": [_passage(turn.passages[at], at, largest, entities, memory) for at in order],
        "joins": _joins(turn, order, entities),
        "dropped": [_dropped(passage) for passage in turn.dropped],
    }


def _order(turn: ExplainedTurn) -> list[int]:
    """Return the indices of the passages, largest share first."""
    return sorted(range(len(turn.passages)), key=lambda at: (-turn.passages[at].share, at))


def _entities(turn: ExplainedTurn) -> dict[str, int]:
    """Map the id of each entity to its number on the page, within the turn."""
    spans = (span.entity for passage in turn.passages for span in passage.spans)
    joined = (edge.entity for edge in turn.edges)
    return {entity: number for number, entity in enumerate(dict.fromkeys([*spans, *joined]))}


def _verdict(turn: ExplainedTurn) -> str:
    if not turn.gold:
        return ""
    return "right" if exact_match(turn.answer, [Answer(label) for label in turn.gold]) else "wrong"


def _summary(turn: ExplainedTurn) -> str:
    counts = Counter(passage.origin for passage in turn.passages)
    parts = [f"{counts[origin]} {name}" for origin, name in ORIGINS.items() if counts[origin]]
    text = f"{plural(len(turn.passages), 'passage')}"
    return text + (f": {', '.join(parts)}" if parts else "")


def _passage(
    passage: ExplainedPassage,
    at: int,
    largest: float,
    entities: Mapping[str, int],
    memory: MemoryMode,
) -> Json:
    kept = "similarity" if memory == "rerank" else "score"
    score = {"new": "score", "memory": kept, "remembered": "score"}[passage.origin]
    attention = [] if passage.attention is None else [f"attention {_percent(passage.attention)}"]
    return {
        "share": _percent(passage.share),
        "width": round(100 * passage.share / largest, 1) if largest else 0,
        "source": passage.source,
        "origin": origin_words(passage.origin, passage.from_turn),
        "parts": list(_parts(passage, entities)),
        "facts": [
            *attention,
            f"place {at + 1} in the evidence",
            f"{score} {passage.score:.3g}",
            passage.id,
        ],
    }


def _parts(
    passage: ExplainedPassage, entities: Mapping[str, int]
) -> Iterator[tuple[str, list[int], list[str]]]:
    """Split a text where entities begin or end: parts with numbers and names of entities."""
    spans = [(s.start, s.end, entities[s.entity], s.label) for s in passage.spans]
    cuts = sorted({0, len(passage.text), *(cut for span in spans for cut in span[:2])})
    for start, end in pairwise(cuts):
        inside = [span for span in spans if span[0] <= start and end <= span[1]]
        yield passage.text[start:end], [span[2] for span in inside], [span[3] for span in inside]


def _joins(turn: ExplainedTurn, order: Sequence[int], entities: Mapping[str, int]) -> list[Json]:
    """Return the entities that link passages, largest share first."""
    numbers = {at: number for number, at in enumerate(order, 1)}
    edges: dict[str, list[PassageEdge]] = defaultdict(list)
    for edge in turn.edges:
        edges[edge.entity].append(edge)
    shares = {
        entity: sum(edge.share for edge in passage_edges) for entity, passage_edges in edges.items()
    }
    return [
        {
            "entity": entities[entity],
            "label": edges[entity][0].label,
            "share": _percent(shares[entity]),
            "passages": sorted({numbers[at] for e in edges[entity] for at in (e.first, e.second)}),
        }
        for entity in sorted(edges, key=lambda entity: (-shares[entity], entities[entity]))
    ]


def _dropped(passage: DroppedPassage) -> Json:
    facts = [REASONS[passage.reason], f"score {passage.score:.3g}", passage.id]
    return {"source": passage.source, "text": passage.text, "facts": facts}


def _graph(turn: ExplainedTurn) -> Json:
    """Return the graph to draw: passages by their index on the page, and the edges."""
    order, entities = _order(turn), _entities(turn)
    numbers = {at: number for number, at in enumerate(order)}
    common = {
        entity
        for entity, count in Counter(
            entity
            for passage in turn.passages
            for entity in {span.entity for span in passage.spans}
        ).items()
        if 2 * count > len(turn.passages)
    }
    passages = (turn.passages[at] for at in order)
    return {
        "nodes": [
            {"share": round(p.share, 4), "source": p.source, "label": _label(p, common)}
            for p in passages
        ],
        "edges": [
            {
                "ends": [numbers[edge.first], numbers[edge.second]],
                "entity": entities[edge.entity],
                "label": edge.label,
                "share": round(edge.share, 4),
            }
            for edge in turn.edges
        ],
    }


def _label(passage: ExplainedPassage, common: Collection[str]) -> str:
    """Return a passage's label: its entities' names, without those that most passages have."""
    words = (passage.text[s.start : s.end] for s in passage.spans if s.entity not in common)
    label = " · ".join(dict.fromkeys(words)) or passage.text
    return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1].rstrip()}…"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.{0 if share == 0 or share >= 0.0995 else 1}f} %"


def _signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")
