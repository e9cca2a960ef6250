"""A conversation at the terminal or through a pipe: ``infer.py chat``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from configs.models import sentence_encoder
from configs.schema import MemoryGraphConfig
from data.entities import find_entities
from data.evidence_memory import EvidenceMemory, cached
from data.examples import Example, ExampleBuilder
from data.jsonlines import Json, read_pool
from data.memory_graph.conversation import ChatGraph
from data.types import Conversation, Turn
from inference.answer import answer_batch
from inference.load import load
from model.graph_lm import GraphLM


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
