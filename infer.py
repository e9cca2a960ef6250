"""Answer with a checkpoint: ``python infer.py answer | score | chat``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from rich.console import Console
from rich.markup import escape
from tqdm import tqdm
from transformers import AutoTokenizer

from configs.models import resolve_model, sentence_encoder, where_looked
from configs.schema import Config, MemoryGraphConfig
from data.cli import run_cli
from data.collate import collate
from data.entities import complete_entities, find_entities
from data.evidence_memory import EvidenceMemory, cached
from data.examples import Example, ExampleBuilder, choose_questions
from data.jsonlines import Json, dump, join_pools, read_conversations, read_pool, whole_file
from data.memory_graph.conversation import ChatGraph
from data.predictions import prediction_record
from data.prompt import Prompt
from data.score import GROUPINGS, score_files
from data.types import Conversation, Evidence, Turn
from model.checkpoint import checkpoint_config
from model.graph_lm import GraphLM
from model.sharding import is_sharded, place

logger = logging.getLogger("infer")
DRAW_SEED = 1


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and run one of the commands."""
    parser = argparse.ArgumentParser(prog="infer.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    answer = commands.add_parser("answer", help="answer every turn of a file of conversations")
    add_model_options(answer)
    answer.add_argument("--input", required=True, help="conversations, JSON Lines")
    answer.add_argument("--output", required=True, help="predictions, JSON Lines")
    answer.add_argument(
        "--history",
        choices=("gold", "predicted"),
        default="gold",
        help="which answers fill the interaction",
    )
    answer.add_argument(
        "--evidence_of",
        choices=("own", "other"),
        default="own",
        help="other: each conversation gets another one's evidence, a control",
    )
    answer.add_argument(
        "--cut_edges",
        choices=("nothing", "entity", "all"),
        default="nothing",
        help="edges to leave out of every graph: what the trained model owes to them",
    )
    answer.add_argument(
        "--single_answers_only",
        action="store_true",
        help="leave out questions whose gold answer is a list",
    )
    answer.add_argument("--max_questions", type=positive, help="answer a fixed draw of so many")
    answer.add_argument("--batch_size", type=positive, default=8, help="examples in one batch")
    answer.set_defaults(run=answer_command)

    score = commands.add_parser("score", help="score predictions against their gold answers")
    score.add_argument("--predictions", nargs="+", required=True, help="files of infer.py answer")
    score.add_argument("--by", nargs="*", default=[], choices=GROUPINGS, help="breakdowns")
    score.add_argument("--output_json", help="write the numbers here, too")
    score.set_defaults(run=lambda args: score_files(args.predictions, args.by, args.output_json))

    chat = commands.add_parser("chat", help="ask about an evidence pool, or what is remembered")
    add_model_options(chat)
    chat.add_argument("--evidence", help="evidence pool, JSON Lines")
    chat.add_argument("--memory", metavar="my.db", help="memory graph; it keeps what is said")
    chat.set_defaults(run=chat_command)

    args = parser.parse_args(argv)
    args.run(args)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a checkpoint."""
    parser.add_argument("--checkpoint", required=True, help="a folder that train.py wrote")
    parser.add_argument("--base_model", help="where the base model is now, if it has moved")
    parser.add_argument("--device", help="cpu, cuda, ...; the first GPU where there is one")
    parser.add_argument(
        "--max_new_tokens", type=positive, default=48, help="longest answer, in tokens"
    )


def positive(text: str) -> int:
    """A whole number from 1, for ``argparse``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from 1")
    return int(text)


def load(args: argparse.Namespace) -> tuple[GraphLM, ExampleBuilder]:
    """Model and example builder of a checkpoint."""
    model = GraphLM.from_pretrained(args.checkpoint, args.base_model)
    device = device_of(args)
    try:
        place(model, torch.device(device))
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise ValueError(f"--device {device!r}: {error}") from None
    logger.info("checkpoint %s on %s", args.checkpoint, device)
    config = checkpoint_config(args.checkpoint)
    return model, load_builder(config, args.base_model)


def device_of(args: argparse.Namespace) -> str:
    """The device that was asked for, or the first GPU, or the CPU."""
    return args.device or ("cuda" if torch.cuda.is_available() else "cpu")


def load_builder(config: Config, base_model: str | None = None) -> ExampleBuilder:
    """The example builder of a config, with tokenizer and sentence encoder.

    Raises:
        ValueError: the tokenizer cannot be found.
    """
    name = base_model or config.model.base_model
    path = resolve_model(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer of {name!r}: {where_looked(name)}: {error}") from error
    builder = ExampleBuilder(Prompt(tokenizer), config.evidence, memory_graph=config.memory_graph)
    if builder.needs_embed:  # loaded with the first texts
        builder.embed = cached(sentence_encoder(config.evidence.embedder))
    return builder


def answer_command(args: argparse.Namespace) -> None:
    """``infer.py answer``: predictions for a file of conversations, in its order."""
    state = PartialState(cpu=device_of(args) == "cpu")
    if not state.is_main_process:
        logging.disable(logging.INFO)
    conversations = complete_entities(read_conversations(args.input))
    chosen = chosen_turns(conversations, args)
    pools = None if args.evidence_of == "own" else other_pools(conversations)
    opened = whole_file(args.output) if state.is_main_process else nullcontext()
    with opened as file:  # opened first: hours of answers need a place
        model, builder = load(args)
        builder.cut = args.cut_edges
        if args.history == "predicted":
            records = answer_with_predicted_history(model, builder, conversations, pools, args)
        else:
            examples = [
                example
                for number, turns in tqdm(chosen.items(), desc="graphs")
                for example in builder.conversation(
                    conversations[number], turns, pools[number] if pools else None
                )
            ]
            records = answer_together(
                model, builder.prompt, examples, args.batch_size, args.max_new_tokens
            )
        if file is not None:
            file.writelines(dump(record) + "\n" for record in records)
    builder.log_counts()
    logger.info("wrote %s", args.output)


def chosen_turns(
    conversations: Sequence[Conversation], args: argparse.Namespace
) -> dict[int, list[int]]:
    """Number of the conversation -> numbers of the turns to answer, as the options say.

    Raises:
        ValueError: no turn is left, or turns are left out where later ones need their answers.
    """
    if not args.max_questions and not args.single_answers_only:
        return {number: list(range(len(c.turns))) for number, c in enumerate(conversations)}
    if args.history == "predicted":
        raise ValueError(
            "--history predicted answers every turn: take away --max_questions "
            "and --single_answers_only"
        )
    try:
        return choose_questions(
            conversations, args.max_questions, args.single_answers_only, DRAW_SEED
        )
    except ValueError as error:
        raise ValueError(f"{args.input}: {error}") from None


def other_pools(conversations: Sequence[Conversation]) -> list[tuple[Evidence, ...]]:
    """For each conversation the evidence of the next one that has another pool.

    Raises:
        ValueError: all conversations share one pool.
    """
    own = [join_pools(c.evidence, *(t.evidence for t in c.turns)) for c in conversations]
    found = []
    for number, pool in enumerate(own):
        later = own[number + 1 :] + own[:number]
        other = next((p for p in later if p is not pool and p != pool), None)
        if other is None:
            raise ValueError("--evidence_of other: all conversations have the same evidence")
        found.append(other)
    return found


def answer_together(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batch_size: int,
    max_new_tokens: int,
) -> list[Json]:
    """Prediction records of examples, in their order; every process answers a share of them.

    All processes must call it, with the same examples, and all get all records.
    """
    state = PartialState()
    rank, world = state.process_index, state.num_processes
    mine = list(examples[rank::world])
    # a sharded model needs all processes in every batch: a shorter share is filled up
    missing = -(-len(examples) // world) - len(mine) if is_sharded(model) else 0
    filled = [*mine, *examples[:missing]]
    answered = answer_examples(
        model, prompt, filled, batch_size, max_new_tokens, state.is_local_main_process
    )
    shares = gather_object([list(answered)])
    return [shares[number % world][number // world] for number in range(len(examples))]


def answer_examples(
    model: GraphLM,
    prompt: Prompt,
    examples: Sequence[Example],
    batch_size: int,
    max_new_tokens: int,
    progress: bool = True,
) -> Iterator[Json]:
    """Prediction records of examples, in their order; batches hold examples of like length."""
    by_length = sorted(range(len(examples)), key=lambda i: -examples[i].num_tokens)
    records: dict[int, Json] = {}
    with tqdm(total=len(examples), desc="answers", disable=not progress) as bar:
        for start in range(0, len(by_length), batch_size):
            numbers = by_length[start : start + batch_size]
            batch = [examples[number] for number in numbers]
            answered = answer_batch(model, prompt, batch, max_new_tokens)
            records.update(zip(numbers, answered, strict=True))
            bar.update(len(numbers))
    return (records[number] for number in range(len(examples)))


def answer_batch(
    model: GraphLM, prompt: Prompt, examples: Sequence[Example], max_new_tokens: int
) -> list[Json]:
    """Prediction records of one batch."""
    began = time.monotonic()
    batch = collate(examples, "left", with_target=False).to(model.device)
    generated = model.generate(batch, max_new_tokens, prompt.end_id)
    milliseconds = 1000 * (time.monotonic() - began) / len(examples)
    return [
        prediction_record(example, prompt.answer_text(ids), logprob, milliseconds)
        for example, ids, logprob in zip(
            examples, generated.ids.tolist(), generated.logprobs.tolist(), strict=True
        )
    ]


def answer_with_predicted_history(
    model: GraphLM,
    builder: ExampleBuilder,
    conversations: Sequence[Conversation],
    pools: Sequence[tuple[Evidence, ...]] | None,
    args: argparse.Namespace,
) -> list[Json]:
    """Prediction records where each turn sees the model's own earlier answers.

    The first turns of all conversations are answered together, then the second ones, and so on.
    """
    memories = [builder.memory(conversation) for conversation in conversations]
    interactions: list[list[tuple[str, str]]] = [[] for _ in conversations]
    records: dict[tuple[int, int], Json] = {}
    for turn in range(max(len(c.turns) for c in conversations)):
        numbers = [n for n, c in enumerate(conversations) if turn < len(c.turns)]
        examples = [
            builder.turn(
                conversations[n], turn, interactions[n], memories[n], pools[n] if pools else None
            )
            for n in numbers
        ]
        answered = answer_together(
            model, builder.prompt, examples, args.batch_size, args.max_new_tokens
        )
        for n, record in zip(numbers, answered, strict=True):
            records[n, turn] = record
            interactions[n].append((record["question"], record["answer"]))
    return [records[key] for key in sorted(records)]


def chat_command(args: argparse.Namespace) -> None:
    """``infer.py chat``: one question a line, from a terminal or a pipe; the evidence beneath."""
    if not args.evidence and not args.memory:
        raise ValueError("chat needs --evidence or --memory, or both")
    pool = tuple(find_entities(read_pool(args.evidence))) if args.evidence else ()
    model, builder = load(args)
    console = Console()
    interactive = sys.stdin.isatty()
    if interactive:
        console.print("One question a line; Ctrl-D ends.")
    conversation = Conversation("chat", "", (), pool)
    memory, interaction = builder.memory(conversation), []
    memory.graph = open_memory(builder, args.memory) if args.memory else memory.graph
    while question := read_question(console, interactive):
        turns = (*conversation.turns, Turn(str(len(conversation.turns)), question))
        conversation = Conversation("chat", "", turns, pool)
        record, example = ask(model, builder, conversation, interaction, memory, args)
        interaction.append((question, record["answer"]))
        show_answer(console, None if interactive else question, record, example)
        if memory.graph is not None:
            memory.graph.remember(interaction)
    if memory.graph is not None:
        memory.graph.close()


def open_memory(builder: ExampleBuilder, path: str) -> ChatGraph:
    """A person's memory graph, asked as the checkpoint was trained to, where it was."""
    config = builder.memory_graph or MemoryGraphConfig()
    embed = builder.embed
    if embed is None and config.vectors == "encoder":
        embed = cached(sentence_encoder(builder.config.embedder))
    return ChatGraph(path, config, embed)


def read_question(console: Console, interactive: bool) -> str:
    """The next question, blank lines passed over; "" at the end of the input."""
    try:
        while not (line := (console.input("[bold]> [/]") if interactive else input()).strip()):
            pass
    except EOFError:
        return ""
    return line


def ask(
    model: GraphLM,
    builder: ExampleBuilder,
    conversation: Conversation,
    interaction: Sequence[tuple[str, str]],
    memory: EvidenceMemory,
    args: argparse.Namespace,
) -> tuple[Json, Example]:
    """Answer the last turn of a conversation."""
    example = builder.turn(conversation, len(conversation.turns) - 1, interaction, memory)
    return answer_batch(model, builder.prompt, [example], args.max_new_tokens)[0], example


def show_answer(
    console: Console, question: str | None, record: Json, example: Example, num_pieces: int = 3
) -> None:
    """Print an answer and the best pieces of evidence that it was given."""
    if question is not None:
        console.print(f"[bold]> {escape(question)}[/]")
    console.print(f"[green]{escape(record['answer']) or '(no answer)'}[/]")
    answer = record["answer"].casefold()
    shown = sorted(example.evidence, key=lambda item: answer not in item.evidence.text.casefold())
    for item in shown[:num_pieces]:
        origin = "new" if item.from_turn == example.turn else f"from turn {item.from_turn + 1}"
        origin = "remembered" if item.evidence.source == "memory" else origin
        text = escape(f"[{item.evidence.source}, {item.score:.2f}, {origin}] {item.evidence.text}")
        console.print(f"  [dim]{text}[/]", highlight=False)


if __name__ == "__main__":
    run_cli(main)
