"""The hand-written contradictions through a server that answers from each case's own gold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from turngraph.data.memory_graph.extract.endpoint import EndpointExtractor, EndpointSettings
from turngraph.data.memory_graph.names import alias
from turngraph.data.memory_graph.record.ingest import remember_many
from turngraph.data.memory_graph.record.store import Store
from turngraph.tests.data.memory_graph.chat_server import Answer, chat_server
from turngraph.tests.data.memory_graph.test_contradictions import (
    CASES,
    Case,
    check,
    episodes,
    name_of,
)

LINE = re.compile(r"^(\d+)\. (.*?)(?: \((?:since|until|said) [^()]*\))?$", re.MULTILINE)


def field(text: str, name: str) -> str:
    """Return the text after the last "Name: " of a prompt."""
    return re.findall(rf"^{name}: (.*)$", text, re.MULTILINE)[-1]


def extraction(case: Case, prompt: str) -> dict[str, Any]:
    """Return the triplets that the case gives for the excerpt."""
    passage, time = field(prompt, "Passage"), field(prompt, "Said")
    [said] = [s for s in case["said"] if (s["text"], s["time"]) == (passage, time)]
    triplets = []
    for subject, relation, object_, *more in said["triplets"]:
        times = more[0] if more else {}
        when = f"{times.get('valid_from', '')}/{times.get('valid_to', '')}"
        ends = {"subject": subject, "relation": relation, "object": object_}
        hypothesis = times.get("hypothesis", False)
        triplets.append(ends | {"when": when, "hypothesis": hypothesis})
    return {"theses": [], "triplets": triplets, "times": []}


def replaced(case: Case, prompt: str) -> dict[str, Any]:
    """Return the numbers of the known facts that the new one replaces in the case."""
    said, new = re.findall(r"^New, said (\S+) by [^:]*: (.*)$", prompt, re.MULTILINE)[-1]
    gold = [
        re.escape(alias(" ".join(filter(None, old)))) + (".*" if None in old else "")
        for episode in case["said"]
        for triplet in episode["triplets"]
        if episode["time"] == said and alias(" ".join(triplet[:3])) == alias(new)
        for old in (triplet[3].get("replaces", []) if len(triplet) == 4 else [])
    ]
    known = LINE.findall(prompt.partition("Known facts:")[2].partition("\nNew, ")[0])
    assert [int(number) for number, _ in known] == list(range(1, len(known) + 1))
    old = [int(n) for n, text in known if any(re.fullmatch(g, alias(text)) for g in gold)]
    return {"replaced": old}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_endpoint(case: Case, tmp_path: Path) -> None:
    def answer(body: dict[str, Any], _: int) -> Answer:
        prompt = body["messages"][0]["content"]
        return Answer((replaced if "Known facts:" in prompt else extraction)(case, prompt))

    with chat_server(answer) as server, Store(tmp_path / "memory.db") as store:
        store.db.execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        extractor = EndpointExtractor(EndpointSettings(server.url, "tiny", retries=0))
        remember_many(store, extractor, episodes(case))
        check(case, store)
