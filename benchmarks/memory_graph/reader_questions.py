"""Makes conversations of one question each from memories that somebody wrote questions about.

    python -m turngraph.benchmarks.memory_graph reader_questions --input FILE ... --output FOLDER

Each memory, a diary or a chat with its questions, is remembered in a graph, which is asked each
question; what it recalls, with the days on which it was said, is the pool. A question whose answer
the recalled statements do not have becomes unanswerable; of several spellings the first that they
have is the answer. Every tenth memory is for tune.jsonl.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from turngraph.benchmarks.memory_graph.answers import NUM_READ, diary_questions, fill, is_in
from turngraph.configs.words import plural
from turngraph.data.embedding import Embed, cached
from turngraph.data.jsonlines import write_conversations
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.recollection import dated_text, each_once, evidence_of
from turngraph.data.normalise import normalise_value
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Turn
from turngraph.inference.model_options import EMBEDDER, make_embed

logger = logging.getLogger(__name__)

TUNE = 10
"""Every such memory is for tune.jsonl."""


def conversations_of(memory: dict[str, Any], folder: Path, embed: Embed) -> Iterator[Conversation]:
    """Yield a conversation for each of a memory's questions.

    Args:
        memory: as of ``diaries.json``; the entries of a chat have speakers of their own.
        folder: for its graph.
        embed: the sentence encoder of the questions.
    """
    episodes, asked = diary_questions(memory)
    with closing(fill(episodes, folder / f"{memory['name']}.db", embed)) as chat:
        for number, one in enumerate(asked):
            settings = RecallSettings(num_facts=3 * NUM_READ)
            facts = chat.graph.ask_both(one.question, one.as_of, settings).facts[:NUM_READ]
            if not facts:
                continue  # a reader is not asked either
            pool = evidence_of(each_once(facts), dated_text)
            known = {entity.id for passage in pool for entity in passage.entities}
            stated = [a for a in one.answers if any(is_in(each.text, [a]) for each in pool)]
            label = stated[0].label if stated else NOT_IN_EVIDENCE
            entity = norm if (norm := normalise_value(label)) in known else None
            turn = Turn("0", one.question, (Answer(label, entity),))
            yield Conversation(f"{memory['name']}-{number}", "memory", (turn,), tuple(pool))


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.jsonl and tune.jsonl of questions with what a memory recalls for them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--input", type=Path, nargs="+", required=True, help="JSON Lines, a memory each"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the two files")
    options = parser.parse_args(argv)
    memories = [json.loads(line) for path in options.input for line in path.open(encoding="utf-8")]
    embed = cached(make_embed(EMBEDDER))
    parts: dict[str, list[Conversation]] = {"train": [], "tune": []}
    with tempfile.TemporaryDirectory() as folder:
        for number, memory in enumerate(memories):
            part = "train" if number % TUNE else "tune"
            parts[part] += conversations_of(memory, Path(folder), embed)
    for part, made in parts.items():
        write_conversations(options.output / f"{part}.jsonl", made)
        none = sum(one.turns[0].answers[0].label == NOT_IN_EVIDENCE for one in made)
        questions = plural(len(made), "question")
        logger.info("%s: %s, %d unanswerable", options.output / f"{part}.jsonl", questions, none)
