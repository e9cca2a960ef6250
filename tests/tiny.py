"""Random tiny models with a tokenizer of their own, and a hand-made benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from turngraph.configs.schema import EncoderConfig, EvidenceConfig, LoraConfig, ModelConfig
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import ChainGraph
from turngraph.data.prompt import ANSWER, INSTRUCTION, Prompt
from turngraph.data.types import Answer, Conversation, Entity, Evidence, Turn
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model

COUNTRIES = (
    ("Peru", "Lima", "sol"),
    ("Chad", "N'Djamena", "franc"),
    ("Japan", "Tokyo", "yen"),
    ("Norway", "Oslo", "krone"),
    ("Kenya", "Nairobi", "shilling"),
    ("Cuba", "Havana", "peso"),
)
END_ID = 1
LORA = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=("q_proj", "up_proj"))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
)
ARCHITECTURES: dict[str, tuple[dict[str, Any], str]] = {
    "llama": ({"num_key_value_heads": 1, "tie_word_embeddings": True}, "q_proj"),
    "mistral": ({"num_key_value_heads": 1, "sliding_window": None}, "q_proj"),
    "qwen2": ({"num_key_value_heads": 1}, "q_proj"),
    "qwen3": ({"num_key_value_heads": 1, "head_dim": 16}, "q_proj"),
    "gpt_neox": ({}, "query_key_value"),
    "gpt2": ({}, "c_attn"),
    "gemma3_text": ({"num_key_value_heads": 1, "head_dim": 16}, "q_proj"),
}
"""Model type -> settings beside the common ones, a layer to adapt."""


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with the chat format of SmolLM2; token 1 ends a turn."""
    texts = [*INSTRUCTION, "<evidence></evidence>", f"Question: {ANSWER}", "user assistant"]
    texts += [passage.text for number in range(6) for passage in tiny_conversation(number).evidence]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    end = "<|im_end|>"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_base(architecture: str = "llama", seed: int = 0, vocabulary: int = 480) -> PreTrainedModel:
    """A random causal LM of width 32, in float32; weights large enough to make a difference."""
    settings, _ = ARCHITECTURES[architecture]
    config = AutoConfig.for_model(
        architecture,
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=END_ID,
        **settings,
    )
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).eval()


def save_tiny(folder: Path, seed: int = 0) -> str:
    """A folder with a random tiny LM and its tokenizer, as ``base_model`` takes it."""
    tokenizer = tiny_tokenizer()
    tiny_base(seed=seed, vocabulary=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tiny_model(architecture: str = "llama", seed: int = 0, **settings: Any) -> EvidenceModel:
    """A float32 EvidenceModel over a random tiny LM, in evaluation mode, gates wide open."""
    layer = ARCHITECTURES[architecture][1]
    defaults: dict[str, Any] = {
        "base_model": f"tiny/{architecture}",
        "dtype": "float32",
        "lora": LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=(layer,)),
        "encoder": EncoderConfig(residual_gate=0.5),
    }
    base = tiny_base(architecture)
    torch.manual_seed(seed)
    return make_model(ModelConfig(**defaults | settings), base).eval()


def stir(model: EvidenceModel, seed: int = 0) -> EvidenceModel:
    """Random values in all that is trained, as after training (LoRA starts at no change)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def tiny_conversation(number: int, id_: str | None = None) -> Conversation:
    """A conversation about one country over a pool of its own; every question has its answer."""
    country, capital, currency = COUNTRIES[number % len(COUNTRIES)]
    named = {name: Entity(f"Q-{name}", name) for name in (country, capital, currency)}

    def passage(id_: str, text: str, source: Any, *names: str) -> Evidence:
        return Evidence(id_, text, source, tuple(named[name] for name in names))

    people = f"{number + 2} million"
    named[people] = Entity(people, people)
    pool = (
        passage("0", f"{country}, capital, {capital}", "kb", country, capital),
        passage("1", f"{country}, currency is {currency}", "infobox", country, currency),
        passage("2", f"City {capital}, people of the city {people}", "table", capital, people),
        passage("3", f"Many visitors of {capital} pay in {currency}.", "text", capital, currency),
        passage("4", "A sentence about nothing in particular.", "text"),
        passage("5", f"It often rains in {country}.", "text", country),
    )
    asked = (
        (f"What is the capital of {country}?", capital, "kb"),
        ("How many people live there?", people, "table"),
        ("And what do they pay with?", currency, "infobox"),
    )
    turns = tuple(
        Turn(str(i), question, (Answer(label, named[label].id),), source)
        for i, (question, label, source) in enumerate(asked)
    )
    return Conversation(id_ or f"c{number}", "tiny", turns, pool)


def tiny_builder(**evidence: Any) -> ExampleBuilder:
    """An example builder without evidence memory for the tiny tokenizer."""
    config = EvidenceConfig(**{"memory": "none", "top_k": 5} | evidence)
    return ExampleBuilder(Prompt(tiny_tokenizer()), config)


def tiny_examples(count: int = 4, **evidence: Any) -> list[Example]:
    """Examples of different lengths: the turns of one conversation after the other."""
    builder = tiny_builder(**evidence)
    numbers = range(-(-count // 3))
    return [e for n in numbers for e in builder.conversation(tiny_conversation(n))][:count]


def with_edges(example: Example, edges: list[tuple[int, int]]) -> Example:
    """The same example with other edges."""
    index = np.array(edges, np.int64).reshape(-1, 2).T
    return replace(example, graph=ChainGraph(example.graph.node_ids, index, 0))


def text_ids(example: Example) -> list[int]:
    """All token ids of an example's prompt, the evidence as text."""
    return [*example.prefix_ids, *example.graph.prompt_ids.tolist(), *example.suffix_ids]
