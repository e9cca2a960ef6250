"""A job of batch inference: which checkpoint answers which file, and how."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from turngraph.configs.json_files import file_hash
from turngraph.configs.user_error import UserError
from turngraph.data.corpus.corpus import Corpus
from turngraph.data.json_fields import Json
from turngraph.data.outputs import is_stream
from turngraph.inference.load import device_of
from turngraph.inference.options import AnswerOptions, LoadOptions
from turngraph.model.checkpoint import Checkpoint
from turngraph.model.distributed import sharding_wanted

NOT_COMPARED = ("keep_going",)
"""Options that change no answer, so that they are not compared as settings."""


@dataclass(frozen=True)
class AnswerJob:
    """Batch inference over one file: checkpoint, input, output and options.

    Args:
        checkpoint: the checkpoint that answers.
        input: conversations, JSON Lines.
        output: predictions, JSON Lines.
        options: options of answering, which also choose the questions.
        loading: options of loading the checkpoint.
        fresh: discard the answers in the output.
        explain: path ``OUT.html`` of the page that explains each conversation's answers.
        max_minutes: stop after this time; the same job resumes.
        ray: address of a Ray cluster that answers, ``local`` for this machine; None: these
            processes.
    """

    checkpoint: Checkpoint
    input: str
    output: str
    options: AnswerOptions
    loading: LoadOptions
    fresh: bool
    explain: str | None
    max_minutes: float | None
    ray: str | None

    def __post_init__(self) -> None:
        resolved = self.options.resolved(self.checkpoint.config)
        object.__setattr__(self, "options", resolved)

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            UserError: they do not; the message names the option.
        """
        if os.path.realpath(self.output) == os.path.realpath(self.input):
            raise UserError(f"--output: {self.output} is also the input")
        evidence = self.loading.applied(self.checkpoint.config.evidence)
        if self.options.evidence_of == "other" and evidence.corpus is not None:
            raise UserError("--evidence_of other: all conversations search the same corpus")
        if self.ray is not None and (self.explain or sharding_wanted()):
            raise UserError("--ray: remove --explain, and start one process without accelerate")
        if not self.explain:
            return
        if is_stream(self.output):
            raise UserError(f"--explain reads the answers again, and {self.output} is no file")
        if sharding_wanted():
            raise UserError(
                "--explain: not possible under FSDP; start one process, or do not shard"
            )
        if self.options.cut_edges == "shuffle":
            raise UserError("--explain names the entities of edges: remove --cut_edges shuffle")

    @property
    def _device(self) -> str:
        """Type of the device that answers."""
        if self.ray is not None:
            return self.loading.device or "cuda"
        return device_of(self.loading.device).partition(":")[0]

    def settings(self) -> Json:
        """Return everything that determines the answers, with hashes of the files read."""
        shaping = dataclasses.asdict(self.options)
        corpus = self.loading.applied(self.checkpoint.config.evidence).corpus
        return {
            "checkpoint": self.checkpoint.hash,
            "input": file_hash(self.input),
            "device": self._device,
            "quantization": self.loading.quantization,
            "retriever": self.loading.retriever,
            **({} if corpus is None else {"corpus": Corpus(corpus).fingerprint}),
            **{name: value for name, value in shaping.items() if name not in NOT_COMPARED},
        }
