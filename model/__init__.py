"""Tensors only: the language model with LoRA, the graph encoders, decoding and checkpoints.

Read ``evidence_model.py``, the base class of the models, then one module a kind: ``text_lm.py``,
``graph_lm.py`` (graph in the prompt), ``node_ranker.py`` (graph alone), ``reader.py`` (graph
between two layers). ``make_model.py`` makes the kind that a config asks for. ``graph_encoder.py``
and ``gatv2.py`` are the graph in the prompt; ``graph_at_layer.py`` and ``node_answers.py`` are the
graph between two layers, ``reader_layers.py`` the layers around it. ``generation.py`` decodes,
``attribution.py`` explains an answer, ``checkpoint.py`` saves and loads. This package and ``data``
never import each other.
"""
