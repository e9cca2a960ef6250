"""Measures the quality of checkpoints and of retrieval in more detail than by hits."""
