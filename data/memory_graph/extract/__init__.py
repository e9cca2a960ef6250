"""Texts to statements: by rules of English, a local LM, a server, spaCy, or as they are given."""
