"""Benchmarks of speed and quality, compared with other libraries; each command has ``--help``.

``study`` trains and answers the rows of the paper's table 2 and reports on them; ``speed`` measures
training, answering, retrieval and graphs; ``quality`` measures trained checkpoints more finely than
hits do; ``memory_graph`` measures the memory graph's retrieval and speed; ``demo`` is the demo.
"""
