"""The memory graph's retrieval quality and its speed at a million nodes."""
