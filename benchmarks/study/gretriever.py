"""Trains PyG's GRetriever on our evidence, and answers with it: rows of ``trainer: gretriever``.

    python -m turngraph.benchmarks.study.gretriever train|answer ...

It trains on the same questions in the same batches and steps, with the same Adam, clipping and
schedule, and reads the same passages of E_t. The rest is its own, as ``speed/peers.py`` builds it:
prompt, LoRA (rank 8 on q_proj and v_proj), and a GAT over one node per passage with features from a
sentence encoder. Answering resumes after a stop; a training starts over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from turngraph.benchmarks.speed.peers import Pyg
from turngraph.benchmarks.study.runs import PEER_WEIGHTS as WEIGHTS
from turngraph.benchmarks.tables import parser_of
from turngraph.configs.json_files import file_hash
from turngraph.configs.models import sentence_encoder
from turngraph.configs.parse import read_config, write_config
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import run_cli
from turngraph.data.embedding import cached
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.prediction_records import prediction_record
from turngraph.inference.load import load_builder
from turngraph.inference.options import AnswerOptions
from turngraph.inference.output import AnswerFile
from turngraph.inference.questions import Questions
from turngraph.model.base_model import load_base_model
from turngraph.model.checkpoint import commit
from turngraph.train import load_train_and_tune
from turngraph.training.optimizer import set_rates
from turngraph.training.run_log import RunLog

END_OF_ANSWER = "[/s]"  # PyG writes it after every label
SETTINGS = ("single_answers_only", "max_questions", "batch_size", "max_new_tokens")
"""Options that determine the answers."""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, then train or answer."""
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser("train", help="train as the config says; the checkpoint is last")
    train.add_argument("--config", required=True)
    train.set_defaults(run=train_command)
    answer = commands.add_parser("answer", help="answer a file of conversations, gold history")
    for name in ("checkpoint", "input", "output"):
        answer.add_argument(f"--{name}", required=True, type=Path)
    answer.add_argument("--single_answers_only", action="store_true")
    answer.add_argument("--max_questions", type=int)
    answer.add_argument("--batch_size", type=int, default=8)
    answer.add_argument("--max_new_tokens", type=int, default=48)
    answer.add_argument("--fresh", action="store_true", help="discard what --output holds")
    answer.set_defaults(run=answer_command)
    args = parser.parse_args(argv)
    args.run(args)


def train_command(args: argparse.Namespace) -> None:
    """Train, and write the checkpoint ``last`` at the end.

    Raises:
        UserError: the config or its data cannot be used, or a gradient is not finite.
    """
    config = read_config(args.config)
    settings = config.training
    set_seed(settings.seed)
    builder = load_builder(config)
    examples, _ = load_train_and_tune(config, builder)
    system, schedule = make_system(config, builder), BatchSchedule(examples, settings)
    system.module.train()
    log, began = RunLog(Path(settings.output), 0, 0, None, {}), time.monotonic()
    for index in tqdm(range(schedule.num_steps), desc="train"):
        set_rates(system.optimizer, settings, index, schedule.num_steps)
        loss = system.step([[examples[i] for i in batch] for batch in schedule.step(index)])
        log.write(index + 1, time.monotonic() - began, {"loss": loss})
    last, named = Path(settings.output) / "last", system.module.named_parameters()
    last.mkdir(exist_ok=True)
    (last / "config.yaml").write_text(write_config(config), encoding="utf-8")
    weights = {name: p.detach().cpu().contiguous() for name, p in named if p.requires_grad}
    save_file(weights, last / WEIGHTS, metadata={"commit": commit() or ""})


def make_system(config: Config, builder: ExampleBuilder) -> Pyg:
    """Build GRetriever around a new base model that answers greedily."""
    model = config.model
    base: Any = load_base_model(model.base_model, model.dtype, model.attn_implementation)
    base.to("cuda" if torch.cuda.is_available() else "cpu")
    base.generation_config.update(do_sample=False, temperature=None, top_p=None, top_k=None)
    embed = cached(sentence_encoder(config.evidence.embedder))
    return Pyg(base, builder.prompt.tokenizer, config, embed)


def answer_command(args: argparse.Namespace) -> None:
    """Answer the questions of a file that the output does not have yet.

    Raises:
        UserError: the output has another checkpoint, input or options, or cannot be written.
    """
    config, weights = read_config(args.checkpoint / "config.yaml"), args.checkpoint / WEIGHTS
    builder, values = load_builder(config), {name: getattr(args, name) for name in SETTINGS}
    chosen = {name: values[name] for name in ("single_answers_only", "max_questions")}
    questions = Questions.read(args.input, AnswerOptions(**chosen))
    size, made_from = len(questions.lines), {"checkpoint": weights, "input": args.input}
    hashes = {name: file_hash(path) for name, path in made_from.items()}
    output = AnswerFile(args.output, hashes | values, size, args.fresh)
    if output.is_complete:
        return
    examples = [
        example
        for index, turns in tqdm(questions.chosen.items(), desc="graphs")
        for example in builder.conversation(questions.conversations[index], turns)
    ]
    system = make_system(config, builder)
    load_weights(system, weights)
    system.module.eval()
    with output, tqdm(total=size, desc="answers") as bar:
        output.begin()
        for start in range(0, size, args.batch_size):
            batch = {n: examples[n] for n in range(size)[start : start + args.batch_size]}
            if not batch.keys() <= output.known.keys():
                records = answer_batch(system, list(batch.values()), args.max_new_tokens)
                output.add(dict(zip(batch, records, strict=True)))
            bar.update(len(batch))
        output.finish()


def load_weights(system: Pyg, path: Path) -> None:
    """Load a checkpoint's weights into a new model.

    Raises:
        UserError: they are those of another model.
    """
    missing, unknown = system.module.load_state_dict(load_file(path), strict=False)
    trains = {name for name, p in system.module.named_parameters() if p.requires_grad}
    if unknown or trains & set(missing):
        raise UserError(f"{path}: not the weights of this model")


def answer_batch(system: Pyg, batch: Sequence[Example], max_new_tokens: int) -> Iterator[Json]:
    """Yield prediction records; GRetriever gives no log-probability."""
    began, data = time.monotonic(), system.graph_batch(batch)
    inputs = data.question, data.x, data.edge_index, data.batch
    texts = system.module.inference(
        *inputs, additional_text_context=data.desc, max_out_tokens=max_new_tokens
    )
    milliseconds = 1000 * (time.monotonic() - began) / len(batch)
    for example, text in zip(batch, texts, strict=True):
        record = prediction_record(example, answer_text(text), 0.0, milliseconds)
        del record["logprob"]
        yield record


def answer_text(text: str) -> str:
    """Return the answer in a generated text: up to its end mark or the end of the line."""
    return text.partition(END_OF_ANSWER)[0].strip().split("\n")[0].strip()


if __name__ == "__main__":
    run_cli(main)
