"""Edits, undoes, forgets, checks, backs up, exports, imports a memory graph; makes themes."""
