"""Maintenance of a memory graph: edit, undo, forget, check, backup, export, import, themes."""
