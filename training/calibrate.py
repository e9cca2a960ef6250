"""Fits the calibration of answers' confidence on tune questions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from turngraph.configs.words import plural
from turngraph.data.json_fields import Json
from turngraph.data.scoring.confidence import Calibration, expected_error, features

logger = logging.getLogger(__name__)
MIN_OF_EACH = 10
"""Number of right answers, and of wrong answers, that a fit needs at least."""
FOLDS = 5


def calibrate(records: Sequence[Json]) -> Calibration | None:
    """Fit a logistic regression that tells right answers from wrong ones.

    The calibration's error is estimated on conversations that its fit has not seen.

    Args:
        records: prediction records of tune questions, with ``hit_at_1``.

    Returns:
        The calibration. None, and a log line with the reason, if fewer than ``MIN_OF_EACH`` answers
        are right, fewer are wrong, or a cross-validation fit has only right or only wrong answers.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    right = np.array([bool(record["hit_at_1"]) for record in records], dtype=bool)
    groups = np.unique([record["conversation"] for record in records], return_inverse=True)[1]
    num_groups = len(set(groups.tolist()))
    folds = min(FOLDS, num_groups)
    splits = list(GroupKFold(folds).split(right, groups=groups)) if folds > 1 else []
    is_mixed = splits and all(0 < right[rest].sum() < len(rest) for rest, _ in splits)
    if min(right.sum(), (~right).sum()) < MIN_OF_EACH or not is_mixed:
        logger.info(
            "confidence is not calibrated: %d right and %d wrong answers to tune questions of %s; "
            "a calibration needs %d of each, mixed over several conversations",
            *(right.sum(), (~right).sum(), plural(num_groups, "conversation")),
            MIN_OF_EACH,
        )
        return None
    seen = np.array([features(record) for record in records])
    model = make_pipeline(StandardScaler(), LogisticRegression())
    held_out = cross_val_predict(model, seen, right, cv=splits, method="predict_proba")
    error = expected_error(held_out[:, 1].tolist(), right.tolist())
    model.fit(seen, right)
    scaler, regression = model[0], model[1]
    weights = regression.coef_[0] / scaler.scale_
    bias = regression.intercept_[0] - weights @ scaler.mean_
    return Calibration(tuple(map(float, weights)), float(bias), len(records), error)
