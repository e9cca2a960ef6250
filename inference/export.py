"""Exports a checkpoint for servers of plain LMs; docs/serving.md serves an export with vLLM.

``--output`` receives the LM with LoRA merged, in transformers' format. It does not contain the
encoder, so ``--prompts`` writes the LM's inputs: embeddings if the evidence is a graph, token ids
if it is text.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from turngraph.configs.json_files import file_hash
from turngraph.configs.progress import library_bars, track
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import collate
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import dump, read_conversations
from turngraph.data.prediction_records import prediction_record
from turngraph.data.prompt import Prompt
from turngraph.data.types import Conversation
from turngraph.inference.load import device_of, load
from turngraph.inference.options import LoadOptions
from turngraph.model.checkpoint import Checkpoint, commit, hashes
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.graph_lm import GraphLM
from turngraph.model.merge import merged_lm, prompt_embeddings
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("infer")
MANIFEST, PROMPTS = "export.json", "prompts.jsonl"
FILE_BYTES = 2**28
"""Size at which a file of embeddings is closed: 256 MiB, about 70 prompts of a 7B model."""
ANSWER_FIELDS = {
    "answer", "candidates", "logprob", "margin", "milliseconds", "hit_at_1", "hit_at_5",
}  # fmt: skip
"""Fields of a prediction record that a prompt does not have."""


@dataclass(frozen=True)
class ExportJob:
    """Options of an export: the checkpoint and the output.

    Args:
        checkpoint: the checkpoint to export.
        output: new folder for the merged LM; None: it is not written.
        prompts: new folder for the prompts of ``input``; None: they are not written.
        input: path of the conversations, JSON Lines.
        dtype: type of the written tensors; None: the checkpoint's.
        loading: how the checkpoint is loaded; ``quantization`` must be "none".

    Raises:
        UserError: neither output is given, the options contradict each other, or a folder exists.
    """

    checkpoint: Checkpoint
    output: str | None
    prompts: str | None
    input: str | None
    dtype: Literal["bfloat16", "float32"] | None
    loading: LoadOptions

    def __post_init__(self) -> None:
        if not self.output and not self.prompts:
            raise UserError("export needs --output or --prompts, or both")
        if bool(self.prompts) != bool(self.input):
            raise UserError("--prompts needs --input, and --input is read for --prompts only")
        for folder in filter(None, (self.output, self.prompts)):
            check_free(Path(folder))
        if self.output and self.prompts:
            one, other = (Path(os.path.realpath(folder)) for folder in (self.output, self.prompts))
            if one.is_relative_to(other) or other.is_relative_to(one):
                raise UserError(f"--prompts {self.prompts}: needs a folder outside --output's")
        self.checkpoint.check_writes()


def export(job: ExportJob) -> None:
    """Write the merged LM, the prompts of a file of conversations, or both.

    Raises:
        UserError: the input, the device or the base model cannot be used, or a folder cannot be
            written.
    """
    device_of(job.loading.device)
    config = job.checkpoint.config.model
    conversations = complete_entities(read_conversations(job.input)) if job.input else []
    if config.quantization != "none":
        logger.warning(
            "the checkpoint was trained on a base model in %s, the export uses the unquantized "
            "base model: the export's answers differ slightly from the checkpoint's",
            config.quantization,
        )
    model, builder = load(job.checkpoint, job.loading)
    if isinstance(model, Reader):
        logger.warning(
            "the export leaves out the graph at layer %d: the exported LM reads all passages as "
            "text and is not told which are likely, so that its answers differ",
            config.layer,
        )
    name = job.dtype or config.dtype
    dtype = getattr(torch, name)
    facts = {"checkpoint": job.checkpoint.manifest, "dtype": name}
    if job.prompts and job.input:  # first: merging changes the model in place
        with whole_folder(Path(job.prompts)) as folder:
            write_prompts(model, builder, conversations, folder, dtype)
            write_manifest(folder, facts | {"input": file_hash(job.input)})
        logger.info("wrote %s", job.prompts)
    if job.output:
        with whole_folder(Path(job.output)) as folder:
            write_model(model, builder.prompt, folder, dtype)
            write_manifest(folder, facts)
        logger.info("wrote %s", job.output)


def write_model(model: EvidenceModel, prompt: Prompt, folder: Path, dtype: torch.dtype) -> None:
    """Write config, weights, generation config, tokenizer and chat template for transformers."""
    assert isinstance(model, TextLM | Reader), "an LM writes"
    with library_bars():
        merged_lm(model, dtype, prompt.end_id).save_pretrained(folder)
    prompt.tokenizer.save_pretrained(folder)


def write_prompts(
    model: EvidenceModel,
    builder: ExampleBuilder,
    conversations: Sequence[Conversation],
    folder: Path,
    dtype: torch.dtype,
) -> None:
    """Write one line per turn, with gold history: token ids, or file and key of the embeddings."""
    embeddings, longest = Embeddings(folder), 0
    with open(folder / PROMPTS, "w", encoding="utf-8") as file:
        for conversation in track(conversations, "prompts", "conversations"):
            for example in builder.conversation(conversation):
                record = prompt_record(example)
                batch = collate([example], "left", with_target=False).to(model.device)
                if not isinstance(model, GraphLM):
                    record["prompt"] = batch.input_ids[0].tolist()
                else:
                    record |= embeddings.add(prompt_embeddings(model, batch)[0].to(dtype))
                file.write(dump(record) + "\n")
                longest = max(longest, batch.input_ids.shape[1])
    embeddings.write()
    logger.info("the longest prompt has %d tokens", longest)
    if model.max_tokens is not None and longest >= model.max_tokens:
        logger.warning(
            "the model has %d positions: a server refuses the longest prompt", model.max_tokens
        )


def prompt_record(example: Example) -> Json:
    """Return an example's prediction record without the fields of an answer."""
    record = prediction_record(example, "", 0.0, 0.0)
    return {name: value for name, value in record.items() if name not in ANSWER_FIELDS}


class Embeddings:
    """Writer of prompt embeddings to safetensors files of bounded size, one key per prompt.

    Args:
        folder: receives the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tensors: dict[str, Tensor] = {}
        self._num_bytes = self._num_prompts = self._num_files = 0

    def add(self, tensor: Tensor) -> Json:
        """Add a prompt, [T, D], and return the ``file`` and ``key`` of its embeddings."""
        location = {"file": self._name(), "key": str(self._num_prompts)}
        self._tensors[location["key"]] = tensor.contiguous()
        self._num_prompts += 1
        self._num_bytes += tensor.nbytes
        if self._num_bytes >= FILE_BYTES:
            self.write()
        return location

    def write(self) -> None:
        """Write the prompts that were added since the last call, if any, to a new file."""
        if self._tensors:
            save_file(self._tensors, self.folder / self._name())
            self._tensors, self._num_bytes = {}, 0
            self._num_files += 1

    def _name(self) -> str:
        return f"embeddings-{self._num_files:05d}.safetensors"


def write_manifest(folder: Path, facts: Json) -> None:
    """Write what an export was made from and the hash of every file in it."""
    manifest = {"format": 1, "commit": commit()} | facts | {"files": hashes(folder)}
    path = folder / MANIFEST
    path.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for written in folder.rglob("*"):  # safetensors writes files that a server's user cannot read
        if written.is_file():
            written.chmod(path.stat().st_mode)


def check_free(folder: Path) -> None:
    """Check that a folder is missing or empty, so that nothing is overwritten.

    Raises:
        UserError: it is a file, or is not empty.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder}: exists already, give the name of a new folder")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``folder`` when it is complete.

    Raises:
        UserError: the folder cannot be written.
    """
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.partial{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        yield partial
        os.rename(partial, folder)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
