"""Examples with candidate entities for tiny models with a scorer, and their scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from turngraph.configs.schema import Config, DataConfig, EvidenceConfig
from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.prompt import Prompt
from turngraph.model.checkpoint import load_checkpoint, save_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.tests.tiny import save_tiny, tiny_builder, tiny_conversation

EVIDENCE: dict[str, Any] = {"graph": "reader"}


def examples(count: int = 6, **evidence: object) -> list[Example]:
    builder = replace(tiny_builder(**EVIDENCE | evidence), mentions=True)
    found = [e for n in range(-(-count // 3)) for e in builder.conversation(tiny_conversation(n))]
    return found[:count]


def reader_builder(**evidence: Any) -> ExampleBuilder:
    """Builds examples for a reader: the question first, and mentions in the graph."""
    builder = tiny_builder(**EVIDENCE | evidence)
    prompt = Prompt(builder.prompt.tokenizer, question_first=True)
    return replace(builder, prompt=prompt, mentions=True)


def read_examples(count: int = 6, **evidence: Any) -> list[Example]:
    builder = reader_builder(**evidence)
    numbers = range(-(-count // 3))
    return [e for n in numbers for e in builder.conversation(tiny_conversation(n))][:count]


def reloaded(model: EvidenceModel, folder: Path) -> EvidenceModel:
    """The model of a checkpoint of this one, whose LM is the tiny one."""
    config = Config(DataConfig(train="x"), EvidenceConfig(**EVIDENCE), model=model.config)
    save_checkpoint(model, config, {}, folder)
    return load_checkpoint(folder, base_model=save_tiny(folder.with_name("lm")))


def scored(model: EvidenceModel, batch: list[Example]) -> list[list[float]]:
    tensors = collate(batch, "left", with_target=False)
    assert tensors.candidates is not None
    with torch.no_grad():
        parts = model.node_scores(tensors).entities.split(
            tensors.candidates.num_candidates.tolist()
        )
    return [part.tolist() for part in parts]
