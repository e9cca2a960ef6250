"""Reads the calibrated confidence of a checkpoint, and the threshold below which it withholds."""

from __future__ import annotations

import logging
from dataclasses import replace

from turngraph.configs.user_error import UserError
from turngraph.data.json_fields import Json
from turngraph.data.scoring.confidence import Calibration, Confidence
from turngraph.model.checkpoint import METRICS, Checkpoint

logger = logging.getLogger(__name__)
THRESHOLD = "abstain_below"
"""Field of a checkpoint's metrics with its own threshold."""
FROM_MEMORY = "from_memory"
"""Field with a calibration and a threshold of answers from a memory graph alone."""
NEEDED = "training fits it on data.tune, from 10 right and 10 wrong answers on"


def read_confidence(
    checkpoint: Checkpoint, abstain_below: float | None = None
) -> Confidence | None:
    """Return calibration and threshold of answers; without a calibration None, and a log line.

    The packaged reader has others for answers from a memory graph alone.

    Args:
        checkpoint: its metrics have the calibration.
        abstain_below: probability below which answers are withheld; None: the threshold in the
            checkpoint's metrics, as in the packaged reader's; without one, no answer is withheld.

    Raises:
        UserError: ``abstain_below`` is given, and the checkpoint has no calibration.
    """
    metrics = checkpoint.metrics
    confidence = _read(checkpoint, metrics, abstain_below)
    if confidence is not None:
        of_memory = _read(checkpoint, metrics.get(FROM_MEMORY, {}), abstain_below)
        return replace(confidence, of_memory=of_memory)
    if abstain_below is not None:
        raise UserError(
            f"--abstain_below: {checkpoint.folder} has no calibrated confidence; {NEEDED}"
        )
    logger.info("answers have no confidence: %s is not calibrated; %s", checkpoint.folder, NEEDED)
    return None


def _read(checkpoint: Checkpoint, metrics: Json, abstain_below: float | None) -> Confidence | None:
    where = str(checkpoint.folder / METRICS)
    calibration = Calibration.from_json(metrics.get("confidence"), where)
    level = metrics.get(THRESHOLD) if abstain_below is None else abstain_below
    return None if calibration is None else Confidence(calibration, level)
