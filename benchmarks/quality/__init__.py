"""Quality of trained checkpoints and of retrieval, measured more finely than by hits."""
