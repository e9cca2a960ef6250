"""Views facts as typed quads by an ontology: computed answers, SPARQL, import and export of RDF.

Read ``lens.py``, the view, then ``plan_maker.py``, from a question to a plan, and ``compute.py``,
from the plan to an answer. ``life.ttl`` is the ontology.
"""
