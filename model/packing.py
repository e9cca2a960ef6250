"""Checks that packed examples in one row do not attend to each other."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from turngraph.configs.user_error import UserError
from turngraph.model.base_model import embedding_table

PROBE_TOKENS = 8
"""Length of each of the two examples."""
TOLERANCE = 0.02
"""Largest relative change of a token's logits that counts as rounding error, bf16 included."""


@torch.no_grad()
def check_packing(lm: PreTrainedModel) -> None:
    """Check that two short examples have the same logits in either order of packing.

    transformers recognises packed examples by positions that restart at 0. An LM must pass the
    positions to its attention for that; many older LMs, and all with a recurrent state, do not.

    Args:
        lm: the base model, with or without adapters.

    Raises:
        UserError: an example's logits depend on the example before it.
    """
    table = embedding_table(lm)
    device, num = table.weight.device, table.num_embeddings
    ids = torch.arange(2 * PROBE_TOKENS, device=device)[None] * (num // (2 * PROBE_TOKENS))
    positions = torch.arange(PROBE_TOKENS, device=device).repeat(2)[None]
    training = lm.training
    lm.eval()
    try:
        with torch.compiler.set_stance("force_eager"):  # not worth compiling for two short rows
            second, first = (
                lm(inputs_embeds=table(row), position_ids=positions, use_cache=False).logits.float()
                for row in (ids, ids.roll(PROBE_TOKENS, 1))
            )
    finally:
        lm.train(training)
    second, first = second[0, PROBE_TOKENS:], first[0, :PROBE_TOKENS]
    difference = float(((second - first).norm(dim=1) / first.norm(dim=1)).max())
    if difference > TOLERANCE:
        raise UserError(
            f"config field training.packing: true given, but {lm.config.model_type} with "
            f"model.attn_implementation {lm.config._attn_implementation!r} lets packed examples "
            f"see each other (logits change by {difference:.0%}); set it to false"
        )
