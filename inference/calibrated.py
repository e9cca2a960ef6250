"""Reads the calibrated confidence of a checkpoint, and the threshold below which it withholds."""

from __future__ import annotations

import logging

from turngraph.configs.user_error import UserError
from turngraph.data.scoring.confidence import Calibration, Confidence
from turngraph.model.checkpoint import METRICS, Checkpoint

logger = logging.getLogger(__name__)
THRESHOLD = "abstain_below"
"""Field of a checkpoint's metrics with its own threshold."""
FROM_MEMORY = "from_memory"
"""Field with a calibration and a threshold of answers from a memory graph alone."""
NEEDED = "training fits it on data.tune, from 10 right and 10 wrong answers on"


def read_confidence(
    checkpoint: Checkpoint, abstain_below: float | None = None, from_memory: bool = False
) -> Confidence | None:
    """Return calibration and threshold of answers; without a calibration None, and a log line.

    Args:
        checkpoint: its metrics have the calibration.
        abstain_below: probability below which answers are withheld; None: the threshold in the
            checkpoint's metrics, as in the packaged reader's; without one, no answer is withheld.
        from_memory: whether what a memory graph recalls is all that is read. The packaged reader
            has another calibration and another threshold for it.

    Raises:
        UserError: ``abstain_below`` is given, and the checkpoint has no calibration.
    """
    where = str(checkpoint.folder / METRICS)
    metrics = checkpoint.metrics
    if from_memory:
        metrics = metrics.get(FROM_MEMORY, metrics)
    calibration = Calibration.from_json(metrics.get("confidence"), where)
    if calibration is not None:
        if abstain_below is None:
            abstain_below = metrics.get(THRESHOLD)
        return Confidence(calibration, abstain_below)
    if abstain_below is not None:
        raise UserError(
            f"--abstain_below: {checkpoint.folder} has no calibrated confidence; {NEEDED}"
        )
    logger.info("answers have no confidence: %s is not calibrated; %s", checkpoint.folder, NEEDED)
    return None
