"""Divides examples into batches, and makes the tensors of a batch.

``schedule.py`` assigns examples to steps, ``collate.py`` makes one batch's tensors, ``reading.py``
those of a batch for the reader, ``prefetch.py`` makes them in a thread ahead of the model.
"""
