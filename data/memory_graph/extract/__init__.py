"""Extractors of statements from texts: English rules, a local LM, a server, spaCy, a given file.

Read ``rules.py`` for the rules, which go from sentences (``sentence_reader.py``) to clauses and
statements, and ``model_extractor.py`` for what all language models share.
"""
