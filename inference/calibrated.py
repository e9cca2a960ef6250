"""Reads how sure a checkpoint's answers are."""

from __future__ import annotations

import logging

from turngraph.configs.user_error import UserError
from turngraph.data.scoring.confidence import Calibration, Confidence
from turngraph.model.checkpoint import METRICS, Checkpoint

logger = logging.getLogger(__name__)
THRESHOLD = "abstain_below"
"""Field of a checkpoint's metrics with the threshold of its own."""
NEEDED = "training fits it on data.tune, from 10 right and 10 wrong answers on"


def read_confidence(
    checkpoint: Checkpoint, abstain_below: float | None = None
) -> Confidence | None:
    """Return how sure answers have to be; None: answers have no confidence, and a log line why.

    Args:
        checkpoint: its metrics have the calibration.
        abstain_below: probability below which answers are withheld; None: the threshold in the
            checkpoint's metrics, such as the packaged reader has; without one, never.

    Raises:
        UserError: answers are to be withheld, and there is no calibration for them.
    """
    where = str(checkpoint.folder / METRICS)
    calibration = Calibration.from_json(checkpoint.metrics.get("confidence"), where)
    if calibration is not None:
        if abstain_below is None:
            abstain_below = checkpoint.metrics.get(THRESHOLD)
        return Confidence(calibration, abstain_below)
    if abstain_below is not None:
        raise UserError(
            f"--abstain_below: {checkpoint.folder} has no calibrated confidence; {NEEDED}"
        )
    logger.info("answers have no confidence: %s is not calibrated; %s", checkpoint.folder, NEEDED)
    return None
