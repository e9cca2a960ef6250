"""Fits the calibration of answers' confidence on tune questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turngraph.data.json_fields import Json
from turngraph.data.scoring.confidence import Calibration, expected_error, features

MIN_OF_EACH = 10
"""Right and wrong answers that a fit needs, so that none is invented from a handful."""
FOLDS = 5


def calibrate(records: Sequence[Json]) -> Calibration | None:
    """Fit a logistic regression that tells right answers from wrong ones.

    Its error is estimated on questions of conversations that a fit has not seen.

    Args:
        records: prediction records of tune questions, with ``hit_at_1``.

    Returns:
        The calibration; None if fewer than ``MIN_OF_EACH`` answers are right, or wrong, or all are
        of one conversation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    right = np.array([bool(record["hit_at_1"]) for record in records], dtype=bool)
    if min(right.sum(), (~right).sum()) < MIN_OF_EACH:
        return None
    seen = np.array([features(record) for record in records])
    model = make_pipeline(StandardScaler(), LogisticRegression())
    groups = np.unique([record["conversation"] for record in records], return_inverse=True)[1]
    folds = min(FOLDS, int(groups.max()) + 1)
    if folds < 2:
        return None
    held_out = cross_val_predict(
        model, seen, right, groups=groups, cv=GroupKFold(folds), method="predict_proba"
    )
    error = expected_error(held_out[:, 1].tolist(), right.tolist())
    model.fit(seen, right)
    scaler, regression = model[0], model[1]
    weights = regression.coef_[0] / scaler.scale_
    bias = regression.intercept_[0] - weights @ scaler.mean_
    return Calibration(tuple(map(float, weights)), float(bias), len(records), error)
