"""Predictions to scores: metrics, intervals, differences, explanations and their page."""
