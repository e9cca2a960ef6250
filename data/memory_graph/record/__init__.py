"""The record of a memory graph in SQLite or PostgreSQL: remembers, supersedes, erases.

``schema.py`` has the tables, ``ingest.py`` writes a text with its statements, ``supersede.py`` ends
a fact that a later one contradicts, ``erase.py`` leaves no byte of what is forgotten.
"""
