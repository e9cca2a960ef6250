"""Functions of the chat page's scripts, run by V8 without a browser."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from py_mini_racer import MiniRacer

from turngraph.data.memory_graph.memory_types import Fact, Provenance
from turngraph.inference.memory_printing import fact_json, validity


def test_a_recalled_fact_that_may_have_ended_is_marked_as_in_the_command() -> None:
    script = (files("turngraph.inference.serve") / "page" / "chat.js").read_text("utf-8")
    [times] = re.findall(r"^function times\(.*?^}$", script, re.MULTILINE | re.DOTALL)
    engine = MiniRacer()
    engine.eval(times)
    said = (Provenance(1, (0, 5), said="2021-05-02T10:30"),)
    marked = Fact(2, "thesis", "Pico is ill.", provenance=said, may_have_ended=44)
    shown = {
        Fact(2, "thesis", "Pico is ill.", provenance=said): "said 2021-05-02 10:30",
        marked: "said 2021-05-02 10:30, may have ended (fact 44)",
    }
    for fact, text in shown.items():
        assert engine.eval(f"times({json.dumps(fact_json(fact))})") == text
    assert validity(marked).endswith("; may have ended (fact 44)")
