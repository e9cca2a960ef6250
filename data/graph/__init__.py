"""From passages to a graph of their tokens: entities, their spans, chains and edges.

``entity_spans.py`` finds where a passage mentions an entity, in characters; ``chain_graph.py``
turns passages into chains of tokens and joins spans of the same entity.
"""
