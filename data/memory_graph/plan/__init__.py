"""Asks questions in steps, where the answer of one step fills a reference in a later one.

A planner makes the plan (``rules_planner.py``, ``model_planner.py``), ``run_plan.py`` runs the
steps, and ``recall_cache.py`` caches recalls.
"""
