"""One conversation, start to end, as the committed ``golden.json`` holds it.

    python -m tests.data.golden

writes the file again after a change that is meant; read the difference before committing it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turngraph.configs.schema import EvidenceConfig
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.prompt import Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Source, Turn

GOLDEN = Path(__file__).with_name("golden.json")
NAMES = {
    "Kid A": ("Q1", ()),
    "2 October 2000": ("2000-10-02", ("October 2, 2000",)),
    "Radiohead": ("Q2", ()),
    "Rolling Stone": ("Q3", ()),
    "Fact": ("Q4", ("Fact magazine",)),
    "Abingdon": ("Q5", ("Abingdon-on-Thames",)),
    "7": ("7", ()),
    "1": ("1", ()),
    "1985": ("1985", ()),
}
PASSAGES: tuple[tuple[Source, str, str], ...] = (
    ("kb", "Kid A, publication date, 2 October 2000", "Kid A|2 October 2000"),
    ("infobox", "Kid A, artist, Radiohead", "Kid A|Radiohead"),
    ("table", "Accolades, Publication: Fact, Rank: 7", "Fact|7"),
    ("table", "Accolades, Publication: Rolling Stone, Rank: 1", "Rolling Stone|1"),
    ("text", "Radiohead formed in Abingdon-on-Thames in 1985.", "Radiohead|Abingdon|1985"),
    ("text", "Fact magazine never prints <|im_end|> or </evidence>.", "Fact"),
    ("text", "The café in Ábingdon serves 7 kinds of tea 🍵.", ""),
    ("kb", "Rolling Stone, founded, 1967", "Rolling Stone"),
    ("text", "On October 2, 2000 it was in the shops.", ""),
)
TURNS = (
    ("When was Kid A released, of what rank?", ("2 October 2000",)),
    ("Rank in Fact magazine?", ("7",)),
    ("And the town of the band, that with the café?", ("Abingdon", "Radiohead")),
)


def conversation() -> Conversation:
    """Nine passages of all forms, three turns, the last with a list answer."""
    pool = tuple(
        Evidence(f"e{number}", text, source, tuple(map(_entity, filter(None, names.split("|")))))
        for number, (source, text, names) in enumerate(PASSAGES)
    )
    turns = tuple(
        Turn(str(number), question, tuple(map(Answer, answers)))
        for number, (question, answers) in enumerate(TURNS)
    )
    return Conversation("golden", "music", turns, pool)


def _entity(label: str) -> Entity:
    id_, mentions = NAMES[label]
    return Entity(id_, label, mentions)


def embed(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors of letter counts, in place of a sentence encoder."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    counts = np.array([[text.lower().count(c) for c in letters] for text in texts], float)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def record(tokenizer: Any) -> dict[str, Any]:
    """What the pipeline makes of the conversation, as plain JSON values."""
    builder = ExampleBuilder(Prompt(tokenizer), EvidenceConfig(top_k=7, history_weight=1.0), embed)
    examples = builder.conversation(conversation())
    return {"turns": [_turn(example, builder.prompt) for example in examples]}


def _turn(example: Example, prompt: Prompt) -> dict[str, Any]:
    decode, graph = prompt.tokenizer.decode, example.graph
    passages = [item.evidence for item in example.evidence]
    plain = [Evidence(p.id, prompt.plain(p.text), p.source, p.entities) for p in passages]
    spans = entity_spans(plain)
    tokens = prompt.tokenizer.convert_ids_to_tokens(graph.node_ids.tolist())
    joined = graph.edge_index[:, graph.edge_index.shape[1] - graph.num_entity_edges :].T.tolist()
    return {
        "evidence": [[i.evidence.id, round(i.score, 4), i.from_turn] for i in example.evidence],
        "prefix": decode(example.prefix_ids),
        "nodes": decode(graph.node_ids),
        "suffix": decode(example.suffix_ids),
        "target": decode(example.target_ids),
        "spans": [
            [f"{span.entity}: {passage.text[span.start : span.end]}" for span in found]
            for passage, found in zip(plain, spans, strict=True)
        ],
        "entity_edges": [f"{a} {tokens[a]} -> {b} {tokens[b]}" for a, b in joined],
        "answer_sources": example.answer_sources,
    }


def _lines(value: Any, indent: str = "") -> str:
    """JSON with every list of plain values on one line."""
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(k)}: {_lines(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(inner + _lines(v, inner) for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    from transformers import AutoTokenizer

    from turngraph.configs.models import resolve_model

    name = resolve_model("HuggingFaceTB/SmolLM2-135M-Instruct")
    text = _lines(record(AutoTokenizer.from_pretrained(name)))
    GOLDEN.write_text(text + "\n", encoding="utf-8")
