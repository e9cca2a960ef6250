"""Tensors only: the language model with LoRA, the graph encoders, decoding and checkpoints.

Read ``graph_lm.py``: the models, one class a kind (text, graph in the prompt, nodes alone, reader).
``graph_encoder.py`` and ``gatv2.py`` are the graph in the prompt, ``graph_at_layer.py`` and
``node_answers.py`` the graph between two layers, which are in ``reader_layers.py``;
``generation.py`` decodes, ``attribution.py`` explains an answer, ``checkpoint.py`` saves and loads.
This package and ``data`` never import each other.
"""
