"""Measures speed and memory, compared with other libraries."""
