"""Retrieves a turn's evidence: E_t by BM25, vectors or both, and M_t from the evidence memory.

Read ``bm25.py``, then ``evidence_memory.py``; ``data/turn_retrieval.py`` chooses among the indexes.
"""
