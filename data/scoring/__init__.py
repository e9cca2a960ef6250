"""Predictions to scores: metrics, intervals, differences, explanations and their page.

Read ``metrics.py`` for what counts as right, then ``score.py``, which scores a file of predictions.
"""
