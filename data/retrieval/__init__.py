"""Retrieves a turn's evidence: E_t by BM25, vectors or both, and M_t from the evidence memory."""
