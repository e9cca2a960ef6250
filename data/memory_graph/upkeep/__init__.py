"""Maintenance of a memory graph: edit, undo, forget, check, backup, export, import, themes.

Read ``forget.py`` first: it says what has to go where something is forgotten. A module is named for
its command; ``make_themes.py`` leads to the other modules of themes.
"""
