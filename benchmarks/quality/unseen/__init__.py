"""Measures checkpoints on documents that they were not trained on, and how well they withhold.

``documents`` are invented, of five kinds. The questions were written before any checkpoint that
answers them: ``questions_read.jsonl`` may be looked at while a model is developed,
``questions_unread.jsonl`` may not. A turn has the spellings of its answer that are accepted; none
if the documents do not answer it. ``questions_second.jsonl`` and ``second_documents`` came later,
by a writer who knew neither the model nor what it was trained on.
"""
