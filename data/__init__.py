"""From conversations and evidence to batches of tensors; only ``batches/collate.py`` needs torch.

Read ``types.py`` (conversation, turn, evidence, entity, the query Q_t), then ``examples.py``, which
takes one turn from its question to token ids and a graph, by ``turn_retrieval.py`` and
``evidence_graph.py``. Below them: ``sources`` reads files,
``retrieval`` ranks evidence, ``graph`` finds entities and builds token chains; above: ``batches``
and ``scoring``. ``prompt.py`` makes prompts, for training and answering alike; ``example_cache.py``
builds examples once; ``outputs.py`` writes files whole; ``cli.py`` turns errors into exit codes.
"""
