"""Benchmarks of speed and quality, compared with other libraries; each command has ``--help``.

``study`` trains and answers the rows of the paper's table 2 and reports on them; ``speed`` measures
a GPU and servers; ``quality`` measures retrieval, explanations, and answers on documents of others;
``memory_graph`` measures what the memory graph finds, reads and computes; ``demo`` is the demo.
"""
