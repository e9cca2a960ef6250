"""The Python API: answers with a trained checkpoint, singly, in batches and in conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from turngraph.configs.schema import Config, Retriever
from turngraph.configs.shipped import READER
from turngraph.data.examples import ExampleBuilder
from turngraph.data.graph.chain_graph import CutEdges
from turngraph.data.json_fields import Json
from turngraph.data.types import Conversation, Turn
from turngraph.inference.answer_lines import answer_lines
from turngraph.inference.calibrated import read_confidence
from turngraph.inference.evidence import Item, read_evidence
from turngraph.inference.hub import find_checkpoint, push_checkpoint, save_checkpoint_files
from turngraph.inference.load import load as load_model
from turngraph.inference.options import AnswerOptions, LoadOptions, MemoryOptions
from turngraph.inference.questions import Questions
from turngraph.inference.session import Session
from turngraph.model.checkpoint import Checkpoint, read_checkpoint
from turngraph.model.evidence_model import EvidenceModel

if TYPE_CHECKING:
    from turngraph.inference.memory_reader import MemoryReader


class AnswerSettings(TypedDict, total=False):
    """The keywords of ``QA.answer``: the fields of ``AnswerOptions``."""

    history: Literal["gold", "predicted"]
    evidence_of: Literal["own", "other"]
    cut_edges: CutEdges
    single_answers_only: bool
    max_questions: int | None
    max_new_tokens: int | None
    batch_tokens: int
    batch_size: int | None
    keep_going: bool
    abstain_below: float | None


def load(
    checkpoint: str | Path = READER,
    *,
    revision: str | None = None,
    base_model: str | None = None,
    device: str | None = None,
    quantization: Literal["none", "4bit"] | None = None,
    trust_remote_code: Sequence[str] = (),
    corpus: str | Path | None = None,
    retriever: Retriever | None = None,
    token: str | None = None,
) -> QA:
    """Load a trained checkpoint to answer with.

    Args:
        checkpoint: a folder that training wrote, or a repository's name on the Hugging Face hub;
            by default the reader that comes with the package.
        revision: branch, tag or commit on the hub.
        base_model: where the base model is now; None: where the checkpoint's config says.
        device: cpu, cuda, ...; None: the first GPU, else the CPU.
        quantization: quantization of the base model; None: as in training.
        trust_remote_code: names of models whose own Python code may run; none by default.
        corpus: folder of a corpus that is searched in addition to the evidence; None: as trained.
        retriever: how passages are retrieved, as ``evidence.retriever``; None: as trained.
        token: for a private repository; None: the one of ``hf auth login``.

    Raises:
        UserError: there is no whole checkpoint, or base model or device cannot be used.
    """
    folder = find_checkpoint(checkpoint, revision=revision, token=token)
    options = LoadOptions(
        base_model,
        device,
        quantization,
        tuple(trust_remote_code),
        None if corpus is None else str(corpus),
        retriever,
    )
    return QA(read_checkpoint(folder), options)


class QA:
    """A trained checkpoint that answers questions.

    Args:
        checkpoint: the checkpoint, as ``read_checkpoint`` returns it.
        loading: place of the base model, and device to compute on.

    Attributes:
        checkpoint: its folder, manifest and config.
        model: in evaluation mode.
        builder: builds the model's examples.

    Raises:
        UserError: base model or device cannot be used.
    """

    def __init__(self, checkpoint: Checkpoint, loading: LoadOptions) -> None:
        self.checkpoint, self.loading = checkpoint, loading
        self.model: EvidenceModel
        self.builder: ExampleBuilder
        self.model, self.builder = load_model(checkpoint, loading)

    @property
    def config(self) -> Config:
        """The config that the checkpoint was trained with."""
        return self.checkpoint.config

    def chat(
        self,
        evidence: Iterable[Item] = (),
        memory: str | Path | MemoryOptions | None = None,
        *,
        max_new_tokens: int | None = None,
        abstain_below: float | None = None,
    ) -> Session:
        """Begin a conversation.

        Args:
            evidence: texts, passages (``Evidence``), pools (.jsonl), documents, folders of them.
            memory: path of a memory graph, which keeps what is said, or its options; None: none.
            max_new_tokens: longest answer in tokens; None: as training has set it.
            abstain_below: confidence below which "not in the evidence" is answered; None: the
                checkpoint's own threshold, if it has one.

        Raises:
            UserError: evidence or memory graph cannot be read.
        """
        options = AnswerOptions(max_new_tokens=max_new_tokens, abstain_below=abstain_below)
        limit = options.resolved(self.config).max_new_tokens
        assert limit is not None, "resolved"
        pool = read_evidence(evidence)
        if isinstance(memory, str | Path):
            memory = MemoryOptions(memory)
        return Session(
            self.model,
            self.builder,
            pool,
            memory,
            limit,
            confidence=read_confidence(self.checkpoint, abstain_below),
        )

    def reader(
        self, *, max_new_tokens: int | None = None, abstain_below: float | None = None
    ) -> MemoryReader:
        """Return a reader that answers from a memory graph: ``graph.ask(question, reader=...)``.

        Args:
            max_new_tokens, abstain_below: as in ``chat``.

        Raises:
            UserError: ``abstain_below`` is given, and the checkpoint has no calibrated confidence.
        """
        from turngraph.inference.memory_reader import MemoryReader  # needs the memory graph

        options = AnswerOptions(max_new_tokens=max_new_tokens, abstain_below=abstain_below)
        limit = options.resolved(self.config).max_new_tokens
        assert limit is not None, "resolved"
        confidence = read_confidence(self.checkpoint, abstain_below)
        return MemoryReader(self.model, self.builder, limit, confidence)

    def answer(
        self, conversations: str | Path | Sequence[Conversation], **settings: Unpack[AnswerSettings]
    ) -> Iterator[Json]:
        """Answer the questions of conversations, in batches of like length.

        Args:
            conversations: a file of JSON Lines (docs/formats.md), or conversations.
            **settings: fields of ``AnswerOptions``, such as ``history="predicted"``.

        Yields:
            Prediction records (docs/formats.md) in the order of the questions, each as soon as
            those before it are answered.

        Raises:
            UserError: the conversations cannot be read, or a question cannot be answered
                (with ``keep_going`` it becomes a record with an ``error``).
        """
        options = AnswerOptions(**settings).resolved(self.config)
        if isinstance(conversations, str | Path):
            questions = Questions.read(conversations, options)
        else:
            questions = Questions.of(conversations, options)
        builder = replace(self.builder, cut=options.cut_edges)
        ready, index = dict(questions.errors), 0
        confidence = read_confidence(self.checkpoint, options.abstain_below)
        for records in answer_lines(self.model, builder, questions, options, None, confidence):
            ready |= records
            while index in ready:
                yield ready.pop(index)
                index += 1
        assert not ready, "lines are missing"

    def generate_batch(
        self,
        questions: Sequence[str | Sequence[str]],
        evidence: Sequence[Iterable[Item]],
        *,
        max_new_tokens: int | None = None,
    ) -> list[Json]:
        """Answer questions that do not depend on each other, each with evidence of its own.

        Args:
            questions: each a text; or the texts of a conversation's questions, which are answered
                one after the other, each with the model's answers before it.
            evidence: evidence of each question or conversation, as ``chat`` takes it.
            max_new_tokens: longest answer in tokens; None: as training has set it.

        Returns:
            Prediction records; of a conversation those of all its turns, in order.

        Raises:
            UserError: evidence cannot be read, or a prompt is too long for the model.
        """
        conversations = []
        for index, (asked, items) in enumerate(zip(questions, evidence, strict=True)):
            texts = [asked] if isinstance(asked, str) else asked
            turns = tuple(Turn(str(turn), text) for turn, text in enumerate(texts))
            conversations.append(Conversation(str(index), "", turns, read_evidence(items)))
        return list(self.answer(conversations, history="predicted", max_new_tokens=max_new_tokens))

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write what answering needs to a new folder, with a model card.

        Raises:
            UserError: the folder holds something already, or cannot be written.
        """
        return save_checkpoint_files(self.checkpoint, Path(folder))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "Upload a Turngraph checkpoint",
    ) -> str:
        """Upload the checkpoint and its model card to the Hugging Face hub.

        Args:
            repo_id: ``organisation/name``; it is created if it does not exist.
            private: whether a new repository is private; None: the organisation's default.
            revision: branch; None: main.
            token: None: the one of ``hf auth login``.
            commit_message: message of the upload's commit.

        Returns:
            The address of the commit.

        Raises:
            UserError: the hub cannot be reached or refuses.
        """
        return push_checkpoint(
            self.checkpoint,
            repo_id,
            private=private,
            revision=revision,
            token=token,
            commit_message=commit_message,
        )
