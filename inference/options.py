"""Options of loading and answering, which the Python API and the command line share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from turngraph.configs.schema import Config, EvidenceConfig, Retriever
from turngraph.configs.user_error import UserError
from turngraph.data.graph.chain_graph import CutEdges

ANSWER_TOKENS = 8192
"""Tokens of one batch of answers, padded prompts and longest answers."""
MAX_NEW_TOKENS = 48
"""Length of the longest answer in tokens if neither training nor a user has set one."""
MAX_QUESTION = 4_000
"""Characters of the longest question that is answered."""


def too_long(question: str) -> str:
    """Return why a question is refused, in words; "" if it is short enough."""
    if len(question) <= MAX_QUESTION:
        return ""
    return f"a question of {len(question):,} characters, at most {MAX_QUESTION:,} are read"


@dataclass(frozen=True)
class LoadOptions:
    """Options of loading a checkpoint.

    Args:
        base_model: where the base model is now; None: where the config says.
        device: cpu, cuda, ...; None: the first GPU, else the CPU.
        quantization: quantization of the base model; None: as in training.
        trust_remote_code: names of models whose own Python code may run.
        corpus: folder of a corpus that is searched in addition to the pools; None: as trained.
        retriever: how passages are retrieved, as ``evidence.retriever``; None: as trained.

    Raises:
        UserError: there is no such retriever.
    """

    base_model: str | None = None
    device: str | None = None
    quantization: Literal["none", "4bit"] | None = None
    trust_remote_code: tuple[str, ...] = ()
    corpus: str | None = None
    retriever: Retriever | None = None

    def __post_init__(self) -> None:
        known = get_args(Retriever)
        if self.retriever is not None and self.retriever not in known:
            raise UserError(
                f"--retriever: {self.retriever!r} given, must be one of {', '.join(known)}"
            )

    def applied(self, evidence: EvidenceConfig) -> EvidenceConfig:
        """Return how evidence is retrieved with these options.

        Raises:
            UserError: a corpus cannot be searched by the retriever.
        """
        given: dict[str, Any] = {"corpus": self.corpus, "retriever": self.retriever}
        return replace(evidence, **{name: value for name, value in given.items() if value})


@dataclass(frozen=True)
class MemoryOptions:
    """Options of the memory graph of a conversation.

    Args:
        path: an SQLite file, or the URL of a PostgreSQL database.
        read_only: recall from it, and remember nothing.
        plan: ask it by plans of steps, found by ``rules`` or a local LM (``lm``), or not
            (``none``); None: as trained.
        plan_model: name of that LM, and of the one of ``compute``; None: the default.
        plan_reader: have the checkpoint answer the steps of plans.
        compute: put answers computed from its typed facts first (``rules``; ``lm``: that LM plans
            what the rules cannot) or not (``none``); None: as trained.

    Raises:
        UserError: an option lacks another that it needs.
    """

    path: str | Path
    read_only: bool = False
    plan: Literal["none", "rules", "lm"] | None = None
    plan_model: str | None = None
    plan_reader: bool = False
    compute: Literal["none", "rules", "lm"] | None = None

    def __post_init__(self) -> None:
        if self.plan_model is not None and "lm" not in (self.plan, self.compute):
            raise UserError("--plan_model needs --plan lm or --compute lm")
        if self.plan_reader and self.plan in (None, "none"):
            raise UserError("--plan_reader needs --plan rules or lm")


@dataclass(frozen=True)
class AnswerOptions:
    """Options of answering the questions of conversations.

    Args:
        history: which answers fill the interaction: ``gold``, or those ``predicted`` before.
        evidence_of: ``other`` gives each conversation the evidence of another one, as a control.
        cut_edges: edges that are left out or drawn at random, as a control.
        single_answers_only: leave out questions whose gold answer is a list.
        max_questions: answer a fixed draw of so many; None: all.
        max_new_tokens: longest answer in tokens; None: as training has set it.
        batch_tokens: tokens of one batch: padded prompts and longest answers.
        batch_size: most questions in one batch; None: as many as ``batch_tokens`` allows.
        keep_going: whether what cannot be read or answered becomes an error record.
        abstain_below: confidence below which "not in the evidence" is answered; None: the
            checkpoint's own, if it has one.

    Raises:
        UserError: a number is out of range.
    """

    history: Literal["gold", "predicted"] = "gold"
    evidence_of: Literal["own", "other"] = "own"
    cut_edges: CutEdges = "nothing"
    single_answers_only: bool = False
    max_questions: int | None = None
    max_new_tokens: int | None = None
    batch_tokens: int = ANSWER_TOKENS
    batch_size: int | None = None
    keep_going: bool = False
    abstain_below: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_questions", "max_new_tokens", "batch_tokens", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name}: {value} given, must be at least 1")
        check_share("abstain_below", self.abstain_below)
        chosen: dict[str, tuple[str, ...]] = {
            "history": ("gold", "predicted"),
            "evidence_of": ("own", "other"),
            "cut_edges": ("nothing", "entity", "shuffle", "all"),
        }
        for name, known in chosen.items():
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise UserError(f"--{name}: {given!r} given, must be one of {', '.join(known)}")
        if self.history == "predicted" and (self.max_questions or self.single_answers_only):
            raise UserError(
                "--history predicted answers every turn: remove --max_questions "
                "and --single_answers_only"
            )

    def resolved(self, config: Config) -> AnswerOptions:
        """Return the options with the length of answers that a checkpoint was trained with.

        Raises:
            UserError: edges are cut that the checkpoint does not have.
        """
        edges = config.evidence.edges
        is_cut = edges == "none" or (edges == "no_entity" and self.cut_edges != "all")
        if self.cut_edges != "nothing" and is_cut:
            raise UserError(
                f"--cut_edges {self.cut_edges}: the checkpoint has evidence.edges: {edges}"
            )
        limit = self.max_new_tokens or config.training.max_new_tokens or MAX_NEW_TOKENS
        return replace(self, max_new_tokens=limit)


def check_share(name: str, value: float | None) -> None:
    """Check that an option is a number from 0 to 1, or not given.

    Raises:
        UserError: it is not.
    """
    if value is not None and not 0 <= value <= 1:
        raise UserError(f"--{name}: {value} given, must be from 0 to 1")
