"""All settings of a run, as frozen dataclasses for YAML and command line.

A field that no shipped run and no study varies says in its docstring when to change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from turngraph.configs.kinds import check
from turngraph.configs.memory_schema import MemoryGraphConfig

EDGE_TYPES = ("forward", "backward", "entity", "question", "header", "row", "column")
"""Edge types of the evidence graph; typed layers add one more type for self-loops."""
PASSAGE_FEATURES = ("score / best score", "ln(1 + rank)", "from memory")
"""Features of a passage from retrieval, which the scorer reads."""

Retriever = Literal["bm25", "links", "dense", "rrf", "eigen"]
"""Ways to retrieve passages from a pool, explained at ``EvidenceConfig.retriever``."""

SCORER_HEADS = 4
"""Attention heads of the scorer's layers, concatenated."""
MAX_LAYERS = 1000
"""Largest number of graph layers; a mistyped number would otherwise fill the memory."""


def _check_layers(name: str, value: int) -> None:
    check(1 <= value <= MAX_LAYERS, name, value, f"must be from 1 to {MAX_LAYERS}")


@dataclass(frozen=True)
class DataConfig:
    """Conversations for training and evaluation."""

    train: str | None = None
    """JSON Lines of conversations to train on."""
    tune: str | None = None
    """Conversations for evaluation while training; the best checkpoint is chosen on them."""
    max_train_questions: int | None = None
    """Train on this many questions, drawn with draw_seed; null: all."""
    draw_seed: int | None = None
    """Random seed for drawing questions; null: training.seed. Change it so that runs with several
    values of training.seed train on the same questions."""
    max_tune_questions: int | None = 200
    """Evaluate on this many questions, drawn with a fixed seed; null: all."""
    single_answers_only: bool = False
    """Leave out questions with several answers; they remain part of the interaction."""
    num_workers: int = 0
    """Processes that retrieve, build graphs and tokenise before training; 0: the main process.
    Change it to the number of cores where building the examples takes long."""
    ray: str | None = None
    """Address of a Ray cluster that replaces num_workers; local: this machine's cores. Change it
    where one machine is too slow."""

    def __post_init__(self) -> None:
        for name in ("max_train_questions", "max_tune_questions"):
            value = getattr(self, name)
            check(value is None or value > 0, f"data.{name}", value, "must be positive or null")
        draw = self.draw_seed
        check(draw is None or draw >= 0, "data.draw_seed", draw, "must not be negative, or null")
        check(self.num_workers >= 0, "data.num_workers", self.num_workers, "must not be negative")


@dataclass(frozen=True)
class EvidenceConfig:
    """Retrieval, evidence memory, and the graph of one turn."""

    retriever: Retriever = "bm25"
    """How E_t is retrieved from the pool. bm25: BM25+; links: BM25+, and passages that share an
    entity with a matching passage are raised; dense: cosine similarity of sentence vectors
    (embedder); rrf: reciprocal-rank fusion of bm25 and dense, over the 64 passages that bm25 ranks
    first, in a corpus over all; eigen: best-first search along similar passages, their themes and
    rare names in common. Change it where questions and passages share few words."""
    corpus: str | None = None
    """Folder of a corpus (turngraph corpus build) that is searched in addition to the pools; null:
    none. Change it for evidence beyond the conversations' own; commands that answer take
    --corpus."""
    ranker: Literal["bm25s", "rank_bm25"] = "bm25s"
    """Library that ranks by BM25+. Change it to check results against the reference implementation:
    both rank alike, bm25s is faster."""
    stemmer: Literal["none", "english"] = "none"
    """english: BM25+ compares Snowball's stems, so that maintains matches maintained (extra stems).
    It needs retriever bm25, links or rrf, and no corpus. Change it for English where words vary in
    form."""
    top_k: int = 30
    """Number of passages in E_t."""
    history_weight: float = 0.4
    """w in the BM25 weight w^k of a turn k turns back; the question has weight 1. 1: the paper's
    Q_t, of whose words the last 128 are kept; less than 1: a new topic outweighs old ones."""
    memory: Literal["none", "rerank", "random"] = "rerank"
    """Evidence memory M_t. none: no memory; rerank: passages of earlier turns, reranked by their
    similarity to Q_t; random: drawn at random (the paper's control)."""
    embedder: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Sentence encoder of the retrievers dense, rrf and eigen, and of memory: rerank. Change it for
    another domain, or another language: sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2
    knows some 50."""
    max_nodes: int | None = None
    """Most tokens of evidence; the lowest-ranked passages beyond it are dropped. Null: no limit."""
    graph: Literal["paper", "reader"] = "paper"
    """paper: token chains w_1 -> w_2, as in the paper's figure, and entity edges; reader: chains in
    both directions, edges of tables (from header to cell, within a row, within a column), and a
    chain of Q_t's tokens, which entities and words link to the evidence. This chain is encoded,
    but takes no position in the prompt."""
    edges: Literal["all", "no_entity", "none", "shuffled"] = "all"
    """Controls, in training and answering. no_entity: leave out the entity edges; none: leave out
    all edges, of every kind; shuffled: replace the entity edges by as many random ones."""

    def __post_init__(self) -> None:
        check(self.top_k >= 1, "evidence.top_k", self.top_k, "must be at least 1")
        weight = self.history_weight
        check(0 <= weight <= 1, "evidence.history_weight", weight, "must lie between 0 and 1")
        of_pools = self.corpus is not None and self.retriever in ("links", "eigen")
        check(
            not of_pools,
            "evidence.retriever",
            self.retriever,
            "must be bm25, dense or rrf where evidence.corpus is set",
        )
        is_stemmed = self.retriever in ("bm25", "links", "rrf") and self.corpus is None
        must = "must be none with evidence.retriever dense or eigen, or with evidence.corpus"
        check(is_stemmed or self.stemmer == "none", "evidence.stemmer", self.stemmer, must)
        is_enough = self.max_nodes is None or self.max_nodes >= 16
        check(is_enough, "evidence.max_nodes", self.max_nodes, "must be at least 16, or null")


@dataclass(frozen=True)
class EncoderConfig:
    """The graph encoder, whose node states are the soft prompt."""

    conv: str = "gatv2"
    """gatv2: our memory-lean GATv2 layer; or a convolution of torch_geometric.nn by its class name,
    such as TransformerConv. Change it to compare convolutions; only gatv2 can be explained."""
    num_layers: int = 2
    """Number of graph convolutions. Change it for evidence that is more hops apart."""
    heads: int = 2
    """Attention heads, each of the LM's width, averaged. Change it where memory is short."""
    dropout: float = 0.5
    """Dropout of attention weights."""
    residual_gate: float | None = 0.1
    """Initial value of the residual gates, which scale each layer's change before it is added to
    the token embeddings: 0 starts with these alone. Null: no residual, as in the paper. Change it
    to compare with the paper's encoder."""

    def __post_init__(self) -> None:
        _check_layers("model.encoder.num_layers", self.num_layers)
        check(self.heads >= 1, "model.encoder.heads", self.heads, "must be at least 1")
        check(0 <= self.dropout < 1, "model.encoder.dropout", self.dropout, "must lie in [0, 1)")
        gate = self.residual_gate
        check(gate is None or isfinite(gate), "model.encoder.residual_gate", gate, "must be finite")


@dataclass(frozen=True)
class ScorerConfig:
    """The GATv2 that scores entities and spans as answers (answers: nodes, or layer above 0)."""

    num_layers: int = 3
    """GATv2 layers, each with a residual and a layer norm. Change it for answers more hops away."""
    width: int = 128
    """Width of node states, shared by the attention heads; token embeddings are projected to it.
    Change it with the data's size."""
    dropout: float = 0.1
    """Dropout of node states; twice as much before the score. Change it where training overfits."""
    kept_nodes: int | None = 224
    """Most tokens of passages that the layers above model.layer read; null: all. Change it with the
    length of the evidence."""

    def __post_init__(self) -> None:
        is_whole = self.width >= 1 and self.width % SCORER_HEADS == 0
        check(is_whole, "model.scorer.width", self.width, f"must be a multiple of {SCORER_HEADS}")
        _check_layers("model.scorer.num_layers", self.num_layers)
        check(0 <= self.dropout < 0.5, "model.scorer.dropout", self.dropout, "must lie in [0, 0.5)")


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adaptation of the LM, by PEFT; field names are PEFT's."""

    r: int = 128
    """Rank."""
    lora_alpha: int = 32
    """Updates are scaled by lora_alpha / r. Change it with r to keep the scale."""
    lora_dropout: float = 0.05
    """Dropout before the low-rank matrices."""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Linear layers to adapt. Change it for a base model with other layer names."""

    def __post_init__(self) -> None:
        check(self.r >= 1, "model.lora.r", self.r, "must be at least 1")
        check(self.lora_alpha >= 1, "model.lora.lora_alpha", self.lora_alpha, "must be at least 1")
        dropout = self.lora_dropout
        check(0 <= dropout < 1, "model.lora.lora_dropout", dropout, "must lie in [0, 1)")
        is_any = len(self.target_modules) > 0
        check(is_any, "model.lora.target_modules", [], "must name at least one layer")


@dataclass(frozen=True)
class ModelConfig:
    """The language model, and how it reads the evidence."""

    base_model: str = "mistralai/Mistral-7B-Instruct-v0.2"
    """A local folder, a model in an installed package, or a name on the hub."""
    evidence: Literal["graph", "text"] = "graph"
    """graph: node states as a soft prompt; text: the same tokens as plain text."""
    answers: Literal["text", "nodes"] = "text"
    """text: the LM writes the answer; nodes: the answer is the entity or span of the evidence whose
    nodes score highest, and of the LM only the token embeddings or layers 1 to layer are used."""
    layer: int = 0
    """Layer of the LM at which the graph sits (evidence: graph). 0: node states are a soft prompt,
    the paper's; above 0: the layers below read each passage after the question, and the graph
    chooses which tokens the layers above read; use about 0.6 of the LM's layers."""
    lora: LoraConfig | None = field(default_factory=LoraConfig)
    """LoRA of the LM; null: the LM is not trained (zero-shot, or only the graph is)."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """Used with evidence: graph and answers: text."""
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    """Used with answers: nodes, and with layer above 0."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Type of frozen weights and computation; trainable weights are float32. Change it to float32
    on GPUs without bfloat16. CPUs without it compute in float32 in any case."""
    quantization: Literal["none", "4bit"] = "none"
    """Quantization of the frozen weights: 4bit is QLoRA's NF4, by bitsandbytes. Change it where the
    base model does not fit into the GPU's memory."""
    attn_implementation: Literal[
        "sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3"
    ] = "sdpa"
    """The LM's attention; flex and flash skip what packing masks out. Change it with packing, or to
    eager on a CPU, where it is a sixth faster."""
    gradient_checkpointing: bool = False
    """Recompute the LM's activations in the backward pass: less memory, a third more time. Change
    it where the GPU's memory is short."""
    trust_remote_code: tuple[str, ...] = ()
    """Names of models whose own Python code may run: base model, sentence encoder. Change it for a
    model that you trust and that transformers has no class for. A checkpoint cannot allow it:
    answering takes --trust_remote_code."""
    compile: bool = False
    """Compile the LM's layers with torch.compile. Change it for long runs on GPUs: it takes minutes
    at the start, and steps are faster."""


@dataclass(frozen=True)
class TrainingConfig:
    """The training loop. Defaults are the paper's (table 4) where it states them."""

    learning_rate: float = 5e-5
    """Adam's learning rate of LoRA."""
    encoder_learning_rate: float = 5e-4
    """Learning rate of encoder and scorer, which are trained from scratch."""
    batch_size: int | None = 1
    """Examples in one forward pass; null where batch_tokens is set."""
    batch_tokens: int | None = None
    """Tokens in one forward pass, padding included; examples are grouped by length. Change it (and
    set batch_size: null) to use a GPU evenly where lengths vary."""
    batches_per_step: int = 4
    """Batches in one optimizer step, shared among the processes: a step is the same for any number
    of processes that divides it."""
    max_passages: int | None = None
    """Most passages of a training question: the first of the evidence.top_k that were found, one of
    them with an answer; null: all. Change it where trained layers read the passages, which takes
    most of the time."""
    packing: bool = False
    """Pack a batch's examples into one row without padding. Change it for speed on GPUs with flash
    or flex attention."""
    num_epochs: float = 1.0
    """Passes over the training questions."""
    max_steps: int | None = None
    """Train this many steps; 0 writes an untrained (zero-shot) checkpoint; null: by num_epochs."""
    warmup_steps: int = 10
    """Steps of linear warm-up; the rates then decay linearly to 0."""
    max_grad_norm: float = 1.0
    """Clip the gradient norm to this value. Change it where logged norms are always clipped."""
    eval_every: int | None = None
    """Number of steps between evaluations on tune, with the loss; null: one at the end, without."""
    save_every: int | None = 100
    """Number of steps between checkpoints to resume from; null: only when the run stops."""
    save_minutes: float | None = 3.0
    """Minutes after which a checkpoint to resume from is written before save_every is reached;
    null: only save_every counts. Change it where writing one takes long."""
    eval_batch_size: int = 8
    """Examples in one batch of evaluation."""
    max_new_tokens: int | None = None
    """Longest answer in tokens, in evaluation and later in answering; null: a quarter more than the
    longest gold answer of train and tune. A number is an upper limit to that."""
    wandb_project: str | None = None
    """Project of Weights & Biases. Change it to log there as well as to TensorBoard."""
    start_from: str | None = None
    """Checkpoint of the same model whose trained weights the run starts with (reader: the packaged
    one); null: new weights. Change it to train a checkpoint further on other data."""
    seed: int = 0
    """Random seed for initial weights, batches and dropout, and for drawing questions unless
    data.draw_seed is given. Change it to see how far results differ by chance."""
    loop: Literal["native", "trl"] = "native"
    """native: the loop in train.py; trl: TRL's SFTTrainer, for evidence: text with LoRA in one
    process; it cannot resume a stopped run. Change it to use what TRL offers."""
    output: str = "runs/default"
    """Folder of the run: best/, last/, log.jsonl, tensorboard/."""

    def __post_init__(self) -> None:
        positive = ("batches_per_step", "eval_batch_size")
        for name in (*positive, "num_epochs", "max_grad_norm"):
            value = getattr(self, name)
            check(value > 0, f"training.{name}", value, "must be positive")
        optional = ("batch_size", "batch_tokens", "eval_every", "save_every", "save_minutes")
        for name in (*optional, "max_passages", "max_new_tokens"):
            value = getattr(self, name)
            check(value is None or value > 0, f"training.{name}", value, "must be positive or null")
        given = (self.batch_size, self.batch_tokens)
        check(
            given.count(None) == 1,
            "training.batch_size and training.batch_tokens",
            given,
            "exactly one of them must be null",
        )
        for name in ("learning_rate", "encoder_learning_rate"):
            value = getattr(self, name)
            check(value >= 0, f"training.{name}", value, "must not be negative")
        for name in ("max_steps", "warmup_steps"):
            value = getattr(self, name)
            check(value is None or value >= 0, f"training.{name}", value, "must not be negative")
        check(0 <= self.seed < 2**32, "training.seed", self.seed, "must lie in [0, 2^32)")


@dataclass(frozen=True)
class Config:
    """The config of one training run."""

    data: DataConfig = field(default_factory=DataConfig)
    """Conversations."""
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    """Retrieval, evidence memory, graph."""
    memory_graph: MemoryGraphConfig | None = None
    """A memory graph for each conversation; null: no memory graph."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Language model, LoRA, encoder."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The loop."""

    def __post_init__(self) -> None:
        steps = self.training.max_steps
        check(
            steps == 0 or self.data.train is not None,
            "data.train",
            None,
            "must name a file unless training.max_steps is 0",
        )
        model = self.model
        if self.training.loop == "trl":
            _check_trl(self)
        if model.layer:
            _check_reader(self)
        elif model.answers == "nodes":
            _check_static_nodes(self)
        trainable = model.lora is not None or model.evidence == "graph"
        check(
            steps == 0 or trainable,
            "model.lora",
            None,
            "with evidence: text there is nothing to train, set training.max_steps: 0",
        )

    @property
    def training_passages(self) -> int:
        """Most passages of a training question."""
        return min(self.evidence.top_k, self.training.max_passages or self.evidence.top_k)


def _check_trl(config: Config) -> None:
    model, training = config.model, config.training
    for name, value, holds, must in (
        ("model.evidence", model.evidence, model.evidence == "text", "text"),
        ("model.answers", model.answers, model.answers == "text", "text"),
        ("model.lora", None, model.lora is not None, "set"),
        ("training.batch_size", None, training.batch_size is not None, "set"),
        ("training.packing", training.packing, not training.packing, "false"),
        ("training.max_steps", training.max_steps, training.max_steps != 0, "above 0"),
    ):
        check(holds, name, value, f"must be {must} where training.loop is trl")


def _check_static_nodes(config: Config) -> None:
    graph, model, training = config.evidence.graph, config.model, config.training
    for name, value, holds, must in (
        ("model.evidence", model.evidence, model.evidence == "graph", "graph"),
        ("model.lora", "LoRA", model.lora is None, "null"),
        ("training.packing", training.packing, not training.packing, "false"),
        ("evidence.graph", graph, graph == "reader", "reader"),
    ):
        check(
            holds, name, value, f"must be {must} where model.answers is nodes and model.layer is 0"
        )


def _check_reader(config: Config) -> None:
    model, training = config.model, config.training
    for name, value, holds, must in (
        ("model.evidence", model.evidence, model.evidence == "graph", "graph"),
        ("model.attn_implementation", *_is(model.attn_implementation, "sdpa"), "sdpa"),
        ("model.compile", model.compile, not model.compile, "false"),
        ("training.packing", training.packing, not training.packing, "false: it never pads"),
    ):
        check(holds, name, value, f"must be {must} where model.layer is above 0")


def _is(value: str, wanted: str) -> tuple[str, bool]:
    return value, value == wanted
