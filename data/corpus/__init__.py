"""A corpus: up to some million passages on disk, ranked by BM25+ and by vectors, memory-mapped.

Files become segments; a change writes new segments and a new version, and a reader keeps the
version that it opened. ``evidence.corpus`` of a config retrieves from one.
"""
