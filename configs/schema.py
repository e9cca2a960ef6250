"""Every setting of a run, as frozen dataclasses that YAML and command line fill alike."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

EDGE_TYPES = (
    "forward",
    "backward",
    "entity",
    "question",
    "header",
    "row",
    "column",
)
"""Types of the evidence graph's edges; where they have vectors, self-loops are one more."""
PASSAGE_FEATURES = ("score beside the best one's", "ln(1 + rank)", "from memory")
"""What retrieval knew of a passage, as ``answers: nodes`` reads it."""


TRAVERSALS = ("BeamSearch", "A*", "WaterCircles", "flat", "ppr")
"""Traversals of the memory graph that a mixture may name."""


def _check(holds: bool, name: str, value: object, must: str) -> None:
    """Raise the error of a setting that cannot be."""
    if not holds:
        raise ValueError(f"config field {name}: {value!r} given, {must}")


@dataclass(frozen=True)
class DataConfig:
    """Which conversations are trained and evaluated on."""

    train: str | None = None
    """JSON Lines of conversations to train on."""
    tune: str | None = None
    """Conversations for evaluation while training; the best checkpoint is chosen on them."""
    max_train_questions: int | None = None
    """Train on this many questions, drawn by the seed; null takes all."""
    table_questions: int = 0
    """Train on this many questions as well, made from the tables of train's pools and drawn by the
    seed; no answer that people gave is looked at (data/table_questions.py)."""
    train_repeats: int = 1
    """How often an epoch holds each question of train; those made from tables it holds once."""
    max_tune_questions: int | None = 200
    """Evaluate on this many questions, drawn by a seed of their own; null takes all."""
    single_answers_only: bool = False
    """Leave out questions whose answer is a list, as targets; they stay in the interaction."""
    num_workers: int = 0
    """Processes that retrieve, build graphs and tokenise before training; 0: the training's own."""

    def __post_init__(self) -> None:
        for name in ("max_train_questions", "max_tune_questions"):
            value = getattr(self, name)
            _check(value is None or value > 0, f"data.{name}", value, "must be positive or null")
        made, repeats = self.table_questions, self.train_repeats
        _check(made >= 0, "data.table_questions", made, "must not be negative")
        _check(repeats >= 1, "data.train_repeats", repeats, "must be at least 1")
        _check(self.num_workers >= 0, "data.num_workers", self.num_workers, "must not be negative")


@dataclass(frozen=True)
class EvidenceConfig:
    """From an evidence pool to the graph of one turn."""

    ranker: Literal["bm25s", "rank_bm25"] = "bm25s"
    """Library that ranks by BM25+; both rank alike."""
    top_k: int = 30
    """Passages in E_t."""
    max_query_words: int = 128
    """Q_t keeps its last words; SBERT encoders cut from the wrong end."""
    memory: Literal["none", "rerank", "random"] = "rerank"
    """Evidence memory: none, reranked against Q_t, or drawn at random (the paper's control)."""
    memory_share: float = 1 / 3
    """Part of E_t, from its bottom, that gives way to M_t."""
    memory_seed: int = 0
    """For memory: random."""
    embedder: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Sentence encoder that reranks M_t."""
    max_nodes: int | None = None
    """Token budget of the evidence; whole passages go from the bottom of E_t. Null: no limit."""
    chain: Literal["forward", "backward", "both"] = "forward"
    """Direction of token chains; forward is w_1 -> w_2, as the paper draws it."""
    entity_edges: Literal["star", "clique", "none"] = "star"
    """star: O(m) edges for m spans of an entity; clique: all pairs."""
    max_entity_share: float = 0.5
    """An entity in more than this part of the passages gets no edges."""
    question_nodes: Literal["none", "question", "query"] = "none"
    """A chain of the question's, or of Q_t's, tokens, joined to the evidence by entities and by
    words: it is encoded, but takes no position in the prompt."""
    structure_edges: Literal["none", "table"] = "none"
    """table: edges from header to cell, within a row, and within a column."""

    def __post_init__(self) -> None:
        _check(self.top_k >= 1, "evidence.top_k", self.top_k, "must be at least 1")
        _check(
            self.max_query_words >= 1,
            "evidence.max_query_words",
            self.max_query_words,
            "must be at least 1",
        )
        for name in ("memory_share", "max_entity_share"):
            value = getattr(self, name)
            _check(0 <= value <= 1, f"evidence.{name}", value, "must lie between 0 and 1")
        _check(
            self.max_nodes is None or self.max_nodes >= 16,
            "evidence.max_nodes",
            self.max_nodes,
            "must be at least 16, or null",
        )


@dataclass(frozen=True)
class MemoryGraphConfig:
    """A memory graph for each conversation; a turn sees what was said and retrieved before it."""

    share: float = 1 / 3
    """Part of E_t, from its bottom, that gives way to recalled facts; they also fill what a small
    pool leaves free."""
    num_evidence: int = 10
    """How many of a turn's best passages are remembered; 0: questions and answers only."""
    mixture: str = "BeamSearch + WaterCircles"
    """Traversals: BeamSearch, A*, WaterCircles, flat and ppr, joined by +."""
    forbidden: tuple[str, ...] = ("E",)
    """Node types that are not walked to: E, T, O (episodes, theses, objects)."""
    num_facts: int = 50
    """Facts that are recalled at most, before share is looked at."""
    min_similarity: float = 0.0
    """Facts with a smaller cosine to the question are not recalled."""
    vectors: Literal["encoder", "words"] = "encoder"
    """encoder: evidence.embedder; words: by words and their parts, without a model."""

    def __post_init__(self) -> None:
        _check(0 <= self.share <= 1, "memory_graph.share", self.share, "must lie between 0 and 1")
        for name, least in (("num_evidence", 0), ("num_facts", 1)):
            value = getattr(self, name)
            _check(value >= least, f"memory_graph.{name}", value, f"must be at least {least}")
        names = [name.strip() for name in self.mixture.split("+")]
        for name in names:
            near = difflib.get_close_matches(name, TRAVERSALS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            must = f"{name!r} is none of {', '.join(TRAVERSALS)}{hint}"
            _check(name in TRAVERSALS, "memory_graph.mixture", self.mixture, must)
        cosine = self.min_similarity
        is_cosine = -1 <= cosine <= 1
        _check(is_cosine, "memory_graph.min_similarity", cosine, "must lie between -1 and 1")
        wrong = [letter for letter in self.forbidden if letter not in ("E", "T", "O")]
        _check(not wrong, "memory_graph.forbidden", wrong, "must be some of E, T, O")


@dataclass(frozen=True)
class EncoderConfig:
    """The GATv2 over the evidence graph."""

    conv: str = "gatv2"
    """gatv2: our GATv2 layer, in little memory; or a convolution of torch_geometric.nn by its class
    name, such as TransformerConv. Change it to compare convolutions; only gatv2 is explained."""
    num_layers: int = 2
    """Graph convolutions, one after the other."""
    heads: int = 2
    """Attention heads of the LM's width each, averaged."""
    dropout: float = 0.5
    """On attention weights, while training."""
    residual: Literal["none", "gated"] = "gated"
    """none: the paper's; gated: each layer's change is added through a residual gate, a scalar that
    starts small."""
    residual_gate_init: float = 0.1
    """Initial value of the residual gates (residual: gated)."""
    node_embeddings: Literal["frozen", "trained"] = "frozen"
    """Whether the encoder's own copy of the LM's token embeddings is trained."""
    edge_types: bool = False
    """A vector for each type of edge, added to its messages and seen by its attention."""

    def __post_init__(self) -> None:
        _check(
            self.num_layers >= 1, "model.encoder.num_layers", self.num_layers, "must be at least 1"
        )
        _check(self.heads >= 1, "model.encoder.heads", self.heads, "must be at least 1")
        _check(0 <= self.dropout < 1, "model.encoder.dropout", self.dropout, "must lie in [0, 1)")
        _check(
            isfinite(self.residual_gate_init),
            "model.encoder.residual_gate_init",
            self.residual_gate_init,
            "must be finite",
        )


@dataclass(frozen=True)
class ScorerConfig:
    """The GATv2 that scores entities as answers (answers: nodes)."""

    num_layers: int = 3
    """GATv2 layers, each with a residual and a layer norm."""
    width: int = 128
    """Of the node states; the LM's token embeddings are projected to it."""
    heads: int = 4
    """Attention heads, side by side: each is width / heads wide."""
    dropout: float = 0.1
    """On node states, while training; twice as much before the score."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "width", "heads"):
            value = getattr(self, name)
            _check(value >= 1, f"model.scorer.{name}", value, "must be at least 1")
        is_whole = self.width % self.heads == 0
        _check(is_whole, "model.scorer.heads", self.heads, "must divide model.scorer.width")
        _check(
            0 <= self.dropout < 0.5, "model.scorer.dropout", self.dropout, "must lie in [0, 0.5)"
        )


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adaptation of the LM, by PEFT; field names are PEFT's."""

    r: int = 128
    """Rank."""
    lora_alpha: int = 32
    """Scale: updates are multiplied by lora_alpha / r."""
    lora_dropout: float = 0.05
    """Dropout before the low-rank matrices."""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Linear layers that are adapted."""

    def __post_init__(self) -> None:
        _check(self.r >= 1, "model.lora.r", self.r, "must be at least 1")
        _check(self.lora_alpha >= 1, "model.lora.lora_alpha", self.lora_alpha, "must be at least 1")
        dropout = self.lora_dropout
        _check(0 <= dropout < 1, "model.lora.lora_dropout", dropout, "must lie in [0, 1)")
        _check(
            len(self.target_modules) > 0,
            "model.lora.target_modules",
            [],
            "must name at least one layer",
        )


@dataclass(frozen=True)
class ModelConfig:
    """The language model and how the evidence enters it."""

    base_model: str = "mistralai/Mistral-7B-Instruct-v0.2"
    """A local folder, a model that an installed package carries, or a name on the hub."""
    evidence: Literal["graph", "text"] = "graph"
    """graph: node states as a soft prompt; text: the same tokens as plain text."""
    answers: Literal["text", "nodes"] = "text"
    """text: the LM writes the answer; nodes: the answer is the entity of the evidence whose nodes
    score best, and of the LM only the token embeddings are used."""
    lora: LoraConfig | None = field(default_factory=LoraConfig)
    """Null trains no part of the LM (zero-shot, or the encoder alone)."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """Read where evidence is graph and answers is text."""
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    """Read where answers is nodes."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of frozen weights and compute; trainable weights are float32."""
    quantization: Literal["none", "4bit"] = "none"
    """Of the base model's frozen weights: 4bit is QLoRA's NF4, by bitsandbytes."""
    attn_implementation: Literal[
        "sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3"
    ] = "sdpa"
    """The LM's attention; flex and flash do not compute what packing masks out."""
    gradient_checkpointing: bool = False
    """Recompute the LM's layers in the backward pass: less memory, a third more time."""
    compile: bool = False
    """torch.compile the LM's layers: minutes at the start, faster steps on GPUs."""


@dataclass(frozen=True)
class TrainingConfig:
    """The loop. The defaults are the paper's (table 4) where it says them."""

    learning_rate: float = 5e-5
    """Of LoRA, for Adam."""
    encoder_learning_rate: float = 5e-4
    """Of the GATv2 layers, which start from nothing."""
    residual_gate_learning_rate: float = 5e-3
    """Of the residual gates (residual: gated)."""
    batch_size: int | None = 1
    """Examples in one forward pass; null where batch_tokens says it."""
    batch_tokens: int | None = None
    """Tokens in one forward pass, padding included; examples are then grouped by length."""
    batches_per_step: int = 4
    """Batches in one optimizer step, shared among the processes: a step is the same on any
    number of them that divides it."""
    packing: bool = False
    """Examples of a batch one behind the other in one row, without padding."""
    num_epochs: float = 1.0
    """Passes over the training questions."""
    max_steps: int | None = None
    """Stop after this many steps; 0 writes an untrained (zero-shot) checkpoint."""
    warmup_steps: int = 10
    """Linear warm-up; the rates then fall linearly to 0."""
    max_grad_norm: float = 1.0
    """Gradient norm is clipped here."""
    eval_every: int | None = None
    """Evaluate on tune after every so many steps; null: at the end only."""
    save_every: int | None = 100
    """Write a checkpoint to resume from after every so many steps; null: when it stops."""
    keep_last: int = 2
    """How many checkpoints to resume from are kept."""
    max_minutes: float | None = None
    """Stop with a checkpoint after so long; the same command then goes on."""
    eval_batch_size: int = 8
    """Examples in one batch of generation."""
    max_new_tokens: int = 48
    """Longest answer in tokens."""
    log_every: int = 1
    """Log after every so many steps."""
    wandb_project: str | None = None
    """Log to this project of Weights & Biases as well as to TensorBoard."""
    seed: int = 0
    """Random seed of the questions that are drawn, initial weights, batches and dropout."""
    loop: Literal["native", "trl"] = "native"
    """native: our loop in train.py; trl: TRL's SFTTrainer, for text rows with LoRA in one process.
    Change it to use what TRL offers; a run of trl that was stopped starts over."""
    output: str = "runs/default"
    """Folder of the run: best/, last/, log.jsonl, tensorboard/."""

    def __post_init__(self) -> None:
        positive = ("batches_per_step", "eval_batch_size", "log_every", "keep_last")
        for name in (*positive, "max_new_tokens", "num_epochs", "max_grad_norm"):
            value = getattr(self, name)
            _check(value > 0, f"training.{name}", value, "must be positive")
        for name in ("batch_size", "batch_tokens", "eval_every", "save_every", "max_minutes"):
            value = getattr(self, name)
            _check(
                value is None or value > 0, f"training.{name}", value, "must be positive or null"
            )
        given = (self.batch_size, self.batch_tokens)
        _check(
            given.count(None) == 1,
            "training.batch_size and training.batch_tokens",
            given,
            "exactly one of them must be null",
        )
        for name in ("learning_rate", "encoder_learning_rate", "residual_gate_learning_rate"):
            value = getattr(self, name)
            _check(value >= 0, f"training.{name}", value, "must not be negative")
        for name in ("max_steps", "warmup_steps"):
            value = getattr(self, name)
            _check(value is None or value >= 0, f"training.{name}", value, "must not be negative")
        _check(0 <= self.seed < 2**32, "training.seed", self.seed, "must lie in [0, 2^32)")


@dataclass(frozen=True)
class Config:
    """One run of train.py."""

    data: DataConfig = field(default_factory=DataConfig)
    """Conversations."""
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    """Retrieval, evidence memory, graph."""
    memory_graph: MemoryGraphConfig | None = None
    """A memory graph for each conversation; null: none."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Language model, LoRA, encoder."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The loop."""

    def __post_init__(self) -> None:
        steps = self.training.max_steps
        _check(
            steps == 0 or self.data.train is not None,
            "data.train",
            None,
            "must name a file unless training.max_steps is 0",
        )
        model = self.model
        if self.training.loop == "trl":
            _check_trl(self)
        if model.answers == "nodes":
            _check_answers_from_nodes(self)
        trainable = model.lora is not None or model.evidence == "graph"
        _check(
            steps == 0 or trainable,
            "model.lora",
            None,
            "with evidence: text there is nothing to train, set training.max_steps: 0",
        )


def _check_trl(config: Config) -> None:
    model, training = config.model, config.training
    for name, value, holds, must in (
        ("model.evidence", model.evidence, model.evidence == "text", "text"),
        ("model.answers", model.answers, model.answers == "text", "text"),
        ("model.lora", None, model.lora is not None, "set"),
        (
            "training.batch_size",
            None,
            training.batch_size is not None,
            "set",
        ),
        ("training.packing", training.packing, not training.packing, "false"),
        ("training.max_steps", training.max_steps, training.max_steps != 0, "above 0"),
    ):
        _check(holds, name, value, f"must be {must} where training.loop is trl")


def _check_answers_from_nodes(config: Config) -> None:
    asked = config.evidence.question_nodes
    for name, value, holds, must in (
        ("model.evidence", config.model.evidence, config.model.evidence == "graph", "graph"),
        ("model.lora", config.model.lora, config.model.lora is None, "null"),
        ("training.packing", config.training.packing, not config.training.packing, "false"),
        ("evidence.question_nodes", asked, asked != "none", "question or query"),
    ):
        _check(holds, name, value, f"must be {must} where model.answers is nodes")
