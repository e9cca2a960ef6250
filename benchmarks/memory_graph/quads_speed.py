"""Time to load and ask many quads, with rdflib beside it on a size that it can hold."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import quantiles
from typing import Any

import rdflib
from pyoxigraph import Literal, NamedNode, Quad, QuerySolutions
from pyoxigraph import Store as QuadStore

from turngraph.data.json_fields import Json
from turngraph.data.memory_graph.ontology.lens import BEGINS, INTEGER, LABEL, SAID, TYPE
from turngraph.data.memory_graph.ontology.ontology import PREFIXES, TG, load_ontology
from turngraph.data.memory_graph.ontology.typed_plan import Selection, sparql_of
from turngraph.data.memory_graph.times import start

QUADS_PER_FACT = 5
FACTS_PER_PERSON = 100
RDFLIB_QUADS = 10_000
NUM_ASKED, NUM_CLASS_WIDE, NUM_RDFLIB = 200, 5, 10
_MOMENT = start("2024-01-01")


def measure_quads(sizes: Sequence[int], seed: int) -> Json:
    """Print and return load time, memory and query times of each size.

    Args:
        sizes: numbers of quads.
        seed: random seed.
    """
    print("| quads | store | load, s | memory, MB | entity plan p50 / p95, ms | class-wide, ms |")
    print("|---|---|---|---|---|---|")
    found: Json = {}
    for size in sizes:
        found[str(size)] = one = _oxigraph(size, seed)
        _print_row(size, "pyoxigraph", one)
        if size <= RDFLIB_QUADS:
            found[f"{size}, rdflib"] = other = _rdflib(size, seed, one.pop("answers"))
            _print_row(size, "rdflib", other)
        one.pop("answers", None)
    print()
    return found


def _print_row(size: int, store: str, found: Json) -> None:
    wide = f"{found['class_wide']:.0f}" if found["class_wide"] is not None else "-"
    print(f"| {size:,} | {store} | {found['load']:.1f} | {found['memory']:.0f} | "
          f"{found['p50']:.1f} / {found['p95']:.1f} | {wide} |", flush=True)  # fmt: skip


def made_up(size: int, seed: int) -> Iterator[Quad]:
    """Yield about a number of quads as ``Lens`` writes them: dated trips, purchases, homes."""
    rng = random.Random(seed)
    num_facts = size // QUADS_PER_FACT
    num_people = max(num_facts // FACTS_PER_PERSON, 1)
    for key in range(1, 2 * num_facts, 2):
        graph, who = NamedNode(f"{TG}f{key}"), NamedNode(f"{TG}o{rng.randrange(num_people)}")
        place = NamedNode(f"{TG}o{num_people + rng.randrange(2000)}")
        second = str(start("2014") + rng.randrange(10 * 365) * 86400)
        if rng.random() < 0.8:
            event = NamedNode(f"{TG}e{key}")
            kind, role = rng.choice([("Trip", "destination"), ("Flight", "destination"),
                                     ("Buy", "object"), ("Meet", "met")])  # fmt: skip
            yield Quad(event, NamedNode(TG + "agent"), who, graph)
            yield Quad(event, NamedNode(TG + role), place, graph)
            yield Quad(event, TYPE, NamedNode(TG + kind))
        else:
            yield Quad(who, NamedNode(TG + "residence"), place, graph)
            yield Quad(who, LABEL, Literal(f"Person {who.value}"))
            yield Quad(place, LABEL, Literal(f"Place {place.value}"))
        yield Quad(graph, BEGINS, Literal(second, datatype=INTEGER))
        yield Quad(graph, SAID, Literal(second, datatype=INTEGER))


def _plans(size: int, seed: int) -> list[str]:
    """Return the queries of plans about single people."""
    rng = random.Random(seed + 1)
    num_people = max(size // QUADS_PER_FACT // FACTS_PER_PERSON, 1)
    ontology = load_ontology()
    kinds = [("Trip", True), ("Buy", True), ("Meet", True), ("residence", False)]
    return [
        sparql_of(Selection(TG + term, is_event, rng.randrange(num_people)), ontology, _MOMENT)
        for term, is_event in rng.choices(kinds, k=NUM_ASKED)
    ]


_CLASS_WIDE = "SELECT (COUNT(?e) AS ?n) { ?e a/rdfs:subClassOf* tg:Travel }"


def _timed(run: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def _oxigraph(size: int, seed: int) -> Json:
    quads = list(made_up(size, seed))
    before = _memory()
    store = QuadStore()

    def load() -> None:
        store.bulk_extend(load_ontology().quads)
        store.bulk_extend(quads)

    seconds, _ = _timed(load)
    memory = _memory() - before
    times, answers = [], []
    for query in _plans(size, seed):
        spent, rows = _timed(partial(_rows, store, query))
        times.append(1000 * spent)
        answers.append(rows)
    wide = [_timed(lambda: _rows(store, _CLASS_WIDE))[0] * 1000 for _ in range(NUM_CLASS_WIDE)]
    return _figures(seconds, memory, times, max(wide)) | {"answers": answers}


def _rows(store: QuadStore, query: str) -> list[str]:
    found = store.query(query, prefixes=PREFIXES)
    assert isinstance(found, QuerySolutions), "a plan is a SELECT"
    return sorted(" ".join(str(term) for term in row) for row in found)


def _rdflib(size: int, seed: int, answers: Sequence[object]) -> Json:
    """Measure rdflib; the first answers must be those of pyoxigraph."""
    before = _memory()
    data = rdflib.Dataset(default_union=False)
    quads = [*load_ontology().quads, *made_up(size, seed)]

    def load() -> None:
        for quad in quads:
            graph = data.default_graph
            if isinstance(quad.graph_name, NamedNode):
                graph = data.graph(rdflib.URIRef(quad.graph_name.value))
            graph.add((_term(quad.subject), _term(quad.predicate), _term(quad.object)))

    seconds, _ = _timed(load)
    times = []
    for query, wanted in list(zip(_plans(size, seed), answers, strict=True))[:NUM_RDFLIB]:
        spent, found = _timed(partial(_listed, data, query))
        times.append(1000 * spent)
        assert isinstance(found, list)
        rows = sorted(" ".join(term.n3() for term in row) for row in found)
        assert rows == wanted, "rdflib and pyoxigraph answer differently"
    return _figures(seconds, _memory() - before, times, None)


def _listed(data: rdflib.Dataset, query: str) -> list[Any]:
    return list(data.query(query, initNs=PREFIXES))


def _term(term: object) -> rdflib.term.Node:
    if isinstance(term, NamedNode):
        return rdflib.URIRef(term.value)
    if isinstance(term, Literal):
        return rdflib.Literal(term.value, datatype=rdflib.URIRef(term.datatype.value))
    return rdflib.BNode(getattr(term, "value", ""))


def _figures(load: float, memory: float, times: Sequence[float], wide: float | None) -> Json:
    cuts = quantiles(times, n=20)
    return {"load": load, "memory": memory, "p50": cuts[9], "p95": cuts[18], "class_wide": wide}


def _memory() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
