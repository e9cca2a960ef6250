"""Questions asked in steps, where the answer of one step fills the blank of the next.

A planner makes the plan (``rules_planner.py``, ``model_planner.py``); ``run_plan.py`` asks the
steps, ``recall_cache.py`` keeps the recalls of equal requests.
"""
