"""Tries random tiny models of every causal LM family of transformers as base models.

    python -m turngraph.benchmarks.quality.base_families           # the table of docs/training.md
    python -m turngraph.benchmarks.quality.base_families llama bert

Each family's own model class is made with small sizes and random weights. The check at load says
whether it can be used. Beside it, answers that are decoded in one batch are compared with answers
that are decoded alone, from the whole row at each step; they differ for no family that is let pass.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tqdm import tqdm
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from turngraph.benchmarks.tables import parser_of
from turngraph.benchmarks.tables import table as markdown
from turngraph.model.base_model import embedding_table
from turngraph.model.base_probe import check_base_model
from turngraph.model.generation import greedy

MAX_PARAMETERS = 60_000_000
"""Larger models are not tried: their config ignores the small sizes."""
LENGTHS = (150, 121, 64, 7)
"""Lengths of the prompts that are answered together and alone, in tokens."""
NEW_TOKENS = 5
LAYERS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "hidden_size_per_layer_input": 8,
    "vocab_size": 480,
    "vocab_size_per_layer_input": 480,
}
OTHER_NAMES = {
    **dict.fromkeys("d_model n_embd embedding_size emb_dim decoder_ffn_dim".split(), 32),
    **dict.fromkeys("n_layer n_head num_layers decoder_layers encoder_layers".split(), 4),
    **dict.fromkeys("num_local_experts n_routed_experts".split(), 4),
    **dict.fromkeys("decoder_attention_heads encoder_attention_heads moe_topk".split(), 2),
    **dict.fromkeys("rotary_dim state_size".split(), 8),
    **dict.fromkeys("kv_lora_rank q_lora_rank".split(), 16),
    **dict.fromkeys("n_group topk_group eos_token_id".split(), 1),
    **{"n_positions": 512, "bos_token_id": 0},
}
"""Sizes by the names of older and of particular families."""
IMAGES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
TRIES: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 2},
    {"num_hidden_layers": 8},
    {"pad_token_id": None},
)
"""What is tried one after the other, until a model computes at all."""


def tiny_family(family: str) -> PreTrainedModel:
    """Make a random tiny model of a family, in float32.

    Raises:
        ValueError: no config with small sizes gives a model that computes.
    """
    error: Exception | None = None
    for changes in TRIES:
        try:
            return _tiny(family, {"pad_token_id": 2} | changes)
        except Exception as caught:  # whatever a config of other sizes raises
            error = caught
    raise ValueError(f"{family}: {type(error).__name__}: {error}") from error


def _tiny(family: str, changes: dict[str, Any]) -> PreTrainedModel:
    kind = CONFIG_MAPPING[family]
    known = {field.name for field in dataclasses.fields(kind)} - {*kind.attribute_map}
    sizes = LAYERS | OTHER_NAMES | changes
    settings = {name: size for name, size in sizes.items() if name in known}
    for name, own in kind.attribute_map.items():
        if name in LAYERS and own not in settings:
            settings[name] = sizes[name]
    if "text_config" in known:
        settings["text_config"] = {name: sizes[name] for name in LAYERS}
        settings["vision_config"] = IMAGES
    config = kind(**settings)
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"its config gives {size:,} parameters")
    torch.manual_seed(0)
    lm: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        lm(input_ids=torch.arange(10, 20)[None])
    return lm


@torch.no_grad()
def same_answers(lm: PreTrainedModel) -> bool:
    """Tell whether prompts decoded together get the tokens that each gets alone, uncached."""
    num = embedding_table(lm).num_embeddings
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, num, (length,), generator=generator) for length in LENGTHS]
    width = max(LENGTHS)
    mask = torch.stack([torch.arange(width) >= width - length for length in LENGTHS])
    ids = torch.zeros(mask.shape, dtype=torch.long).masked_scatter(mask, torch.cat(prompts))
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    embeddings = embedding_table(lm)(ids)
    together = greedy(lm, embeddings, mask, positions, NEW_TOKENS, torch.tensor([-1])).ids
    for row, ids in enumerate(prompts):
        for _ in range(NEW_TOKENS):
            logits = lm(inputs_embeds=embedding_table(lm)(ids[None]), use_cache=False).logits
            ids = torch.cat([ids, logits[0, -1:].argmax(-1)])
        if not torch.equal(ids[-NEW_TOKENS:], together[row]):
            return False
    return True


UNTRIED = "not tried: no tiny model of it could be made"


def verdict(family: str) -> str:
    """Return whether a family can be used: ``yes``, why it is refused, or that it is not tried."""
    try:
        lm = tiny_family(family)
    except ValueError:
        return UNTRIED
    try:
        check_base_model(lm)
    except ValueError as error:
        return reason_of(str(error))
    return "yes" if same_answers(lm) else "let pass, BUT ITS ANSWERS CHANGE WITH THE BATCH"


def reason_of(message: str) -> str:
    """Return the reason in a message of ``check_base_model``, without measured numbers."""
    reason = message.partition("cannot be used: ")[2].partition(" (by ")[0]
    _, asked, what = reason.partition(", when checked whether ")
    return f"raises an error, when checked whether {what}" if asked else reason


def table(families: Iterable[str]) -> str:
    """Return the families by verdict, as a table in Markdown."""
    found = defaultdict[str, list[str]](list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in tqdm(list(families), unit="family"):
            found[verdict(family)].append(family)
    order = ["yes", *sorted(found.keys() - {"yes", UNTRIED}), UNTRIED]
    words = {"yes": "yes", UNTRIED: UNTRIED}
    rows = [
        (words.get(reason, f"no: {reason}"), ", ".join(f"`{name}`" for name in found[reason]))
        for reason in order
        if reason in found
    ]
    return markdown(["can be used", "model types"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("families", nargs="*", help="model types; all causal LMs if none is given")
    chosen = parser.parse_args(sys.argv[1:] if argv is None else argv).families
    print(table(chosen or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)))


if __name__ == "__main__":
    main()
