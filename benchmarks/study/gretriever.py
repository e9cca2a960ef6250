"""Trains PyG's GRetriever on our evidence, and answers with it.

    python -m turngraph.benchmarks.study.gretriever train|answer ...

It trains on the same questions in the same batches and steps, with the same Adam, clipping and
schedule, and reads the same passages of E_t. The rest is its own, as ``speed/peers.py`` builds it:
prompt, LoRA (rank 8 on q_proj and v_proj), and a GAT over one node per passage with features from a
sentence encoder. Training and answering resume after a stop; ``turngraph score``
reads the answers.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file, save_file
from torch.nn.utils import clip_grad_norm_
from torch_geometric.data import Batch as PygBatch
from tqdm import tqdm

from turngraph.benchmarks.speed.peers import Pyg
from turngraph.benchmarks.study.runs import PEER_WEIGHTS as WEIGHTS
from turngraph.configs.json_files import file_hash
from turngraph.configs.models import sentence_encoder
from turngraph.configs.parse import differences, read_config, write_config
from turngraph.configs.schema import Config
from turngraph.configs.user_error import UserError
from turngraph.data.batches.prefetch import fingerprint
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.chosen_questions import choose_questions
from turngraph.data.cli import EXIT_GO_ON, StopRequest, run_cli
from turngraph.data.embedding import cached
from turngraph.data.entities import complete_entities
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.json_fields import Json
from turngraph.data.jsonlines import read_conversations
from turngraph.data.prediction_records import prediction_record
from turngraph.inference.load import load_builder
from turngraph.inference.output import AnswerFile
from turngraph.inference.questions import DRAW_SEED
from turngraph.model.base_model import load_base_model
from turngraph.model.checkpoint import commit
from turngraph.train import is_due, load_train_and_tune
from turngraph.training.optimizer import set_rates
from turngraph.training.run_folder import FREE, locked
from turngraph.training.run_log import RunLog
from turngraph.training.trainer_state import (
    load_optimizer,
    load_random,
    optimizer_tensors,
    random_states,
    read_progress,
    write_trainer_state,
)

logger = logging.getLogger("gretriever")
END_OF_ANSWER = "[/s]"  # PyG writes it after every label


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, then train or answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train as the config says; the checkpoint is last")
    train.add_argument("--config", required=True)
    train.add_argument("--max_minutes", type=float, help="stop after this time")
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
    """Train, resuming from the folder's checkpoint."""
    config = read_config(args.config)
    with StopRequest(args.max_minutes) as stop, locked(Path(config.training.output)):
        set_seed(config.training.seed)
        builder = load_builder(config)
        examples, _ = load_train_and_tune(config, builder)
        system = make_system(config, builder)
        train(system, config, examples, stop)


def make_system(config: Config, builder: ExampleBuilder) -> Pyg:
    """Build GRetriever around a new base model that answers greedily."""
    model = config.model
    base: Any = load_base_model(model.base_model, model.dtype, model.attn_implementation)
    base.to("cuda" if torch.cuda.is_available() else "cpu")
    base.generation_config.update(do_sample=False, temperature=None, top_p=None, top_k=None)
    embed = cached(sentence_encoder(config.evidence.embedder))
    return Pyg(base, builder.prompt.tokenizer, config, embed)


def make_optimizer(system: Pyg, config: Config) -> torch.optim.Adam:
    """Build Adam with our learning rates: LoRA's, and our encoder's for its GNN and projector."""
    rates = config.training.learning_rate, config.training.encoder_learning_rate
    named = [(n, p) for n, p in system.module.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if ("lora_" in n) == lora], "lr": rate, "full_lr": rate}
        for lora, rate in zip((True, False), rates, strict=True)
    ]
    return torch.optim.Adam(groups, fused=True)


def train(system: Pyg, config: Config, examples: Sequence[Example], stop: StopRequest) -> None:
    """Run the training loop: step, log, save, stop.

    Raises:
        UserError: the folder's checkpoint has other data or another config.
    """
    settings, output = config.training, Path(config.training.output)
    schedule, optimizer = BatchSchedule(examples, settings), make_optimizer(system, config)
    data = fingerprint(examples)
    first = resume(system, optimizer, output, config, data)
    system.module.train()
    log, began = RunLog(output, first, num_lines=first), time.monotonic()
    num_steps = schedule.num_steps
    for index in tqdm(range(first, num_steps), initial=first, total=num_steps, desc="train"):
        set_rates(optimizer, settings, index, num_steps)
        batches = [[examples[i] for i in batch] for batch in schedule.step(index)]
        loss = take_step(system, optimizer, batches, settings.max_grad_norm)
        step = index + 1
        log.write(step, time.monotonic() - began, {"loss": loss})
        if stop or is_due(step, settings.save_every) or step == num_steps:
            save(system, optimizer, config, step, data)
        if stop and step < num_steps:
            raise SystemExit(EXIT_GO_ON)
    log.close()


def take_step(
    system: Pyg, optimizer: torch.optim.Optimizer, batches: list[list[Example]], max_norm: float
) -> float:
    """Take one optimizer step; batches are weighted by answer tokens, as in our loop.

    Raises:
        UserError: loss or gradient is not finite.
    """
    tokens = [sum(len(example.target_ids) for example in batch) for batch in batches]
    total = 0.0
    for batch, count in zip(batches, tokens, strict=True):
        graphs = PygBatch.from_data_list([system.graph(example) for example in batch])
        loss = system.module(
            graphs.question,
            graphs.x,
            graphs.edge_index,
            graphs.batch,
            graphs.label,
            additional_text_context=graphs.desc,
        )
        (loss * count / sum(tokens)).backward()
        total += float(loss.detach()) * count / sum(tokens)
    norm = float(clip_grad_norm_(system.module.parameters(), max_norm))
    if not math.isfinite(total) or not math.isfinite(norm):
        raise UserError(f"loss {total}, gradient norm {norm}")
    optimizer.step()
    optimizer.zero_grad()
    return total


def save(
    system: Pyg, optimizer: torch.optim.Optimizer, config: Config, step: int, data: str
) -> None:
    """Write ``last``; the previous one stays until it is complete."""
    last = Path(config.training.output) / "last"
    new, old = last.with_name(".last.new"), last.with_name(".last.old")
    check_ours(last)
    for folder in (new, old) if last.exists() else (new,):
        shutil.rmtree(folder, ignore_errors=True)
    new.mkdir(parents=True)
    (new / "config.yaml").write_text(write_config(config), encoding="utf-8")
    save_file(trained(system), new / WEIGHTS, metadata={"commit": commit() or ""})
    progress = {"step": step, "data": data}
    tensors = optimizer_tensors(system.module, optimizer)
    write_trainer_state(new, tensors, [random_states()], progress)
    if last.exists():
        last.rename(old)
    new.rename(last)
    shutil.rmtree(old, ignore_errors=True)


def check_ours(folder: Path) -> None:
    """Check that a folder is a checkpoint of GRetriever or free; nothing else is replaced.

    Raises:
        UserError: a folder or file is something else.
    """
    if os.path.lexists(folder) and (folder.is_symlink() or not (folder / WEIGHTS).is_file()):
        raise UserError(
            f"{folder}: no checkpoint of GRetriever, and one needs this name; move it, or train "
            "elsewhere"
        )


def trained(system: Pyg) -> dict[str, torch.Tensor]:
    """Return the trained weights by name."""
    named = system.module.named_parameters()
    return {n: p.detach().cpu().contiguous() for n, p in named if p.requires_grad}


def resume(
    system: Pyg, optimizer: torch.optim.Optimizer, output: Path, config: Config, data: str
) -> int:
    """Load the folder's checkpoint, and return its step; 0 if there is none.

    Raises:
        UserError: the checkpoint has another config or other data, or is incomplete, or what has
            its name is something else.
    """
    check_ours(output / "last")
    found = [folder for name in ("last", ".last.old") if (folder := output / name).is_dir()]
    if not found:
        return 0
    changed = differences(read_config(found[0] / "config.yaml"), config).keys() - FREE
    if changed:
        raise UserError(f"{found[0]}: a checkpoint of another config: {', '.join(changed)}")
    progress = read_progress(found[0])
    if progress is None:
        raise UserError(f"{found[0]}: no trainer state to resume from")
    if progress["data"] != data:
        raise UserError(f"{found[0]}: trained on other data")
    load_weights(system, found[0])
    load_optimizer(system.module, optimizer, found[0])
    load_random(found[0], 0)
    return int(progress["step"])


def load_weights(system: Pyg, folder: Path) -> None:
    """Load a checkpoint's weights into a new model."""
    weights = load_file(folder / WEIGHTS)
    missing, unknown = system.module.load_state_dict(weights, strict=False)
    trains = {name for name, p in system.module.named_parameters() if p.requires_grad}
    if unknown or trains & set(missing):
        raise UserError(f"{folder / WEIGHTS}: not the weights of this model")


def answer_command(args: argparse.Namespace) -> None:
    """Answer the questions of a file that the output does not have yet.

    Raises:
        UserError: the output has another checkpoint, input or options, or cannot be written.
    """
    config = read_config(args.checkpoint / "config.yaml")
    builder = load_builder(config)
    conversations = complete_entities(read_conversations(args.input))
    num, single = args.max_questions, args.single_answers_only
    chosen = choose_questions(conversations, num, single, DRAW_SEED)
    size = sum(map(len, chosen.values()))
    output = AnswerFile(args.output, settings_of(args), size, args.fresh)
    if output.is_complete:
        return
    examples = [
        example
        for index, turns in tqdm(chosen.items(), desc="graphs")
        for example in builder.conversation(conversations[index], turns)
    ]
    system = make_system(config, builder)
    load_weights(system, args.checkpoint)
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


def settings_of(args: argparse.Namespace) -> Json:
    """Return everything that determines the answers."""
    names = ("single_answers_only", "max_questions", "batch_size", "max_new_tokens")
    return {
        "checkpoint": file_hash(args.checkpoint / WEIGHTS),
        "input": file_hash(args.input),
        **{name: getattr(args, name) for name in names},
    }


def answer_batch(system: Pyg, batch: Sequence[Example], max_new_tokens: int) -> Iterator[Json]:
    """Yield prediction records; GRetriever gives no log-probability."""
    began = time.monotonic()
    graphs = PygBatch.from_data_list([system.graph(example) for example in batch])
    texts = system.module.inference(
        graphs.question,
        graphs.x,
        graphs.edge_index,
        graphs.batch,
        additional_text_context=graphs.desc,
        max_out_tokens=max_new_tokens,
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
