"""Finds the class of each object: stated ("Rex is a dog"), else from domains and ranges."""

from __future__ import annotations

from collections import defaultdict

from turngraph.configs.extras import extra
from turngraph.data.memory_graph.ontology.lens import AGENT, TYPE, Lens
from turngraph.data.memory_graph.ontology.ontology import TG

with extra("rdf", "typed memory graphs need"):
    from pyoxigraph import DefaultGraph, NamedNode

_OBJECT = f"{TG}o"


def object_classes(lens: Lens) -> dict[int, str]:
    """Return the most specific class of each object, by node id; objects of no class but Thing are
    left out.

    Args:
        lens: a refreshed lens.
    """
    told: dict[str, set[str]] = defaultdict(set)
    implied: dict[str, set[str]] = defaultdict(set)
    properties = lens.ontology.properties
    for fact in lens.facts.values():
        for quad in fact.own:
            if isinstance(quad.graph_name, DefaultGraph):
                continue
            subject, object = quad.subject, quad.object
            assert isinstance(subject, NamedNode), "the lens writes IRIs only"
            if quad.predicate == TYPE and isinstance(object, NamedNode):
                told[subject.value].add(object.value)
                continue
            term = properties.get(quad.predicate.value)
            if term is None:
                continue
            if term.domain is not None and quad.predicate != AGENT:
                implied[subject.value].add(term.domain)
            if term.range is not None and isinstance(object, NamedNode):
                implied[object.value].add(term.range)
    by_object = {}
    for node in told.keys() | implied.keys():
        classes = (told.get(node) or implied[node]) - {TG + "Thing"}
        if node.startswith(_OBJECT) and classes:
            best = max(classes, key=lambda iri: (lens.ontology.depth(iri), iri))
            by_object[int(node.removeprefix(_OBJECT))] = best.removeprefix(TG)
    return by_object
