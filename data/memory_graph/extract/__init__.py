"""Extractors of statements from texts: English rules, a local LM, a server, spaCy, a given file."""
