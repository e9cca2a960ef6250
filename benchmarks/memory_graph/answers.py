"""Answers from a memory graph: diaries of invented people, LoCoMo's conversations, HotpotQA.

    python -m turngraph.benchmarks.memory_graph answers [--data FOLDER] [--reader CHECKPOINT]

prints, for every diary and every category of LoCoMo, how often evidence of the answer stands first
and among the first three, the recall at five and ten, how often the first statement has the answer
in it, and, with a reader, how often the statements that it reads have it, and exact match and F1 of
what it answers from them, withheld or not, how many of the answers from a confidence on are exact,
and how many of those that it gives; an answer to a question that has none is wrong. For diaries it
also prints which states ended as a reader marked them. ``--benchmarks hotpotqa`` asks
HotpotQA-500 over its passages, and ``--episodes 10000`` over so many of their sentences, each an
episode. ``--questions`` draws some of a benchmark's questions. Each line ends with the milliseconds
of a question, its vector included. LoCoMo is CC BY-NC 4.0: for evaluation only.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import numpy as np

from turngraph.benchmarks.embedding_cache import kept_encoder
from turngraph.benchmarks.memory_graph.retrieval_data import find_file, read
from turngraph.configs.memory_schema import MemoryGraphConfig
from turngraph.configs.user_error import UserError
from turngraph.data.embedding import Embed, cached
from turngraph.data.linearise import sentence_spans
from turngraph.data.memory_graph.conversation import ChatGraph
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode, Fact
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.recollection import (
    ReadAnswer,
    Recollection,
    RecollectionReader,
)
from turngraph.data.memory_graph.turns import TurnExtractor
from turngraph.data.scoring.metrics import exact_match, substring_match, token_f1
from turngraph.data.types import NOT_IN_EVIDENCE, Answer
from turngraph.inference.memory_commands import load_reader
from turngraph.inference.model_options import EMBEDDER, make_embed

DIARIES = Path(__file__).parent / "diaries.json"
Way = Literal["both", "facts", "episodes", "chat"]
NUM_READ = 10
CONFIDENCES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass
class Asked:
    """A question with its gold answers and evidence.

    Args:
        question: text of the question.
        group: diary or category that it is counted in.
        evidence: origins of episodes, each of which has the answer; none: nothing has.
        answers: accepted answers; none: there is no answer.
        as_of: time of which it is asked; None: now.
    """

    question: str
    group: str
    evidence: frozenset[str]
    answers: tuple[Answer, ...]
    as_of: str | None = None


@dataclass
class Scores:
    """Sums of one group of questions."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    milliseconds: list[float] = field(default_factory=list)
    answers: list[tuple[float, bool]] = field(default_factory=list)
    """Confidence of each answer of a calibrated reader, and whether it is exact."""
    given: list[bool] = field(default_factory=list)
    """Whether each answer is exact that a reader gives, and does not withhold."""

    def add(self, other: Scores) -> None:
        """Add the sums of another group."""
        self.milliseconds += other.milliseconds
        self.answers += other.answers
        self.given += other.given
        for key, found in other.values.items():
            self.values[key] += found

    def note(self, read: ReadAnswer | None, is_exact: bool) -> None:
        """Count a reader's answer, if it has one, and whether it is exact."""
        if read is None or (read.withheld is None and read.text == NOT_IN_EVIDENCE):
            return
        if read.confidence is not None:
            self.answers.append((read.confidence, is_exact))
        if read.withheld is None:
            self.given.append(is_exact)

    def line(self, name: str) -> str:
        """Return the means in one line, and percentiles of the time."""
        parts = (f"{key} {fmean(found):.3f}" for key, found in self.values.items())
        p50, p95 = np.percentile(self.milliseconds, (50, 95))
        count = len(self.milliseconds)
        times = f"p50 {p50:.0f} ms, p95 {p95:.0f} ms"
        given = f", given {len(self.given)}, {sum(self.given)} right" if self.answers else ""
        return f"{name}: {count} questions, {', '.join(parts)}, {times}{self._exact_from()}{given}"

    def _exact_from(self) -> str:
        """Return how many answers of at least each confidence are exact, and how many there are."""
        counts = ([exact for sure, exact in self.answers if sure >= x] for x in CONFIDENCES)
        told = zip(CONFIDENCES, counts, strict=True)
        return "".join(f", from {x} {sum(each)} of {len(each)}" for x, each in told if each)


def diary_questions(diary: dict[str, Any]) -> tuple[list[Episode], list[Asked]]:
    """Return the entries of a diary as episodes, and its questions."""
    episodes = [
        Episode(
            entry["text"],
            entry["date"],
            diary["name"],
            str(number),
            entry.get("speaker") or diary["speaker"],
        )
        for number, entry in enumerate(diary["entries"], 1)
    ]
    return episodes, [
        Asked(
            one["question"],
            diary["name"],
            frozenset(map(str, one["evidence"])),
            tuple(map(Answer, one["answers"])),
            one.get("as_of"),
        )
        for one in diary["questions"]
    ]


def locomo_questions(folder: Path) -> Iterator[tuple[list[Episode], list[Asked]]]:
    """Yield the turns and the answerable questions of every conversation."""
    path = find_file(folder, "locomo_3.json")
    given = json.loads(path.read_text("utf-8"))
    for collection, conversation in zip(read("locomo", folder), given, strict=True):
        gold = {question.text: question.gold for question in collection.questions}
        asked = [
            Asked(
                one["question"],
                f"LoCoMo, category {one['category']}",
                gold[one["question"]],
                (Answer(str(one["answer"])),),
            )
            for one in conversation["qa"]
            if gold.get(one["question"]) and "answer" in one
        ]
        yield list(collection.episodes), asked


def hotpotqa_questions(folder: Path, num_episodes: int | None) -> tuple[list[Episode], list[Asked]]:
    """Return HotpotQA-500's passages as episodes, and its questions.

    Args:
        folder: with the file.
        num_episodes: number of sentences of the passages that are the episodes instead; evidence
            is any sentence of a supporting passage.
    """
    [collection] = read("hotpotqa", folder)
    asked = [Asked(one.text, "HotpotQA", one.gold, ()) for one in collection.questions]
    if num_episodes is None:
        return list(collection.episodes), asked
    episodes: list[Episode] = []
    origins: dict[str, set[str]] = defaultdict(set)
    for passage in collection.episodes:
        text = passage.text.partition("\n")[2]
        for start, stop in sentence_spans(text):
            if len(episodes) < num_episodes:
                origins[str(passage.origin)].add(str(len(episodes)))
                episodes.append(Episode(text[start:stop], origin=str(len(episodes))))
    if len(episodes) < num_episodes:
        raise UserError(f"--episodes {num_episodes}: the passages have {len(episodes)} sentences")
    group = f"{num_episodes} episodes"
    return episodes, [
        replace(
            one, group=group, evidence=frozenset().union(*(origins[gold] for gold in one.evidence))
        )
        for one in asked
    ]


def ask_all(
    chat: ChatGraph, asked: Sequence[Asked], way: Way, reader: RecollectionReader | None
) -> dict[str, Scores]:
    """Ask all questions, a reader those without an answer as well, and return scores by group.

    In a chat, each question follows the one before and its answer; it has no ``as_of``.
    """
    graph = chat.graph
    ways: dict[Way, Callable[..., Recollection]] = {
        "both": graph.ask_both, "facts": graph.ask, "episodes": graph.ask_episodes,
    }  # fmt: skip
    settings = RecallSettings(num_facts=3 * NUM_READ)
    before: list[tuple[str, str]] = []
    origins = dict(graph.store.db.execute("SELECT node, origin FROM episodes"))
    found: dict[str, Scores] = defaultdict(Scores)
    for one in asked:
        if way == "chat" and one.as_of is not None:
            continue
        if not one.evidence:  # nothing can be found, and an answer is wrong
            if reader is not None and way != "chat":
                recalled = ways[way](one.question, one.as_of, settings)
                found[one.group].note(_read(reader, recalled), False)
            continue
        began = time.perf_counter()
        if way == "chat":
            recalled = chat.ask(one.question, before)
            before = [(one.question, one.answers[0].label if one.answers else "")]
        else:
            recalled = ways[way](one.question, one.as_of, settings)
        found[one.group].milliseconds.append(1000 * (time.perf_counter() - began))
        facts = recalled.facts
        ranked = list(dict.fromkeys(origins[node] for fact in facts for node in episodes_of(fact)))
        values = found[one.group].values
        values["first"].append(bool(one.evidence.intersection(ranked[:1])))
        values["among three"].append(bool(one.evidence.intersection(ranked[:3])))
        for depth in (5, 10):
            values[f"recall at {depth}"].append(
                len(one.evidence.intersection(ranked[:depth])) / len(one.evidence)
            )
        if not one.answers:
            continue
        first = facts[0].text if facts else ""
        values["answer in the first"].append(is_in(first, one.answers))
        if reader is not None:
            texts = " ".join(fact.text for fact in facts[:NUM_READ])
            values["answer in what is read"].append(is_in(texts, one.answers))
            read = _read(reader, recalled)
            answer = "" if read is None else read.text if read.withheld is None else read.withheld
            is_exact = any(exact_match(answer, [gold]) for gold in one.answers)
            values["exact"].append(is_exact)
            found[one.group].note(read, is_exact)
            values["F1"].append(max(token_f1(answer, [gold]) for gold in one.answers))
    return found


def _read(reader: RecollectionReader, recalled: Recollection) -> ReadAnswer | None:
    """Return what a reader answers from the first statements."""
    return reader.read(replace(recalled, facts=recalled.facts[:NUM_READ]))


def is_in(text: str, answers: Sequence[Answer]) -> bool:
    """Return whether a text has any spelling of an answer as whole words."""
    return any(substring_match(text, [gold]) for gold in answers)


def episodes_of(fact: Fact) -> list[int]:
    """Return the episodes that state a fact, or the one that it is."""
    if fact.type == "episodic":
        return [fact.key >> 1]
    return [place.episode for place in fact.provenance]


def ends(graph: MemoryGraph, diary: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return how many states ended as marked, are marked, ended unmarked, and are not marked.

    A state is a sentence; it ends if all that was read from it does not hold any more. A sentence
    with two marks counts once, and ends as marked if either entry ends it.
    """
    rows = graph.store.db.execute(
        """SELECT e.origin, p.start, p.stop, n.valid_to FROM nodes n JOIN provenance p
        ON p.fact = 2 * n.id JOIN episodes e ON e.node = p.episode WHERE n.type = 1"""
    ).fetchall()
    texts = [entry["text"] for entry in diary["entries"]]
    marked = [(end["entry"], texts[end["entry"] - 1].index(end["quote"])) for end in diary["ends"]]
    right = wrong = num_ended = 0
    lost = set(marked)
    for origin, start, stop, until in rows:
        places = enumerate(marked)
        at = [i for i, (n, place) in places if n == int(origin) and start <= place < stop]
        lost.difference_update(marked[i] for i in at)
        num_ended += bool(at)
        months = [diary["entries"][diary["ends"][i]["ended_by"] - 1]["date"][:7] for i in at]
        right += until is not None and str(until).startswith(tuple(months))
        wrong += until is not None and not at
    return right, num_ended + len(lost), wrong, len(rows) - num_ended


def read_diaries(path: Path) -> list[dict[str, Any]]:
    """Return the diaries of a file.

    Raises:
        UserError: a diary has no questions.
    """
    diaries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    for diary in diaries:
        if not diary.get("questions"):
            raise UserError(f"{path}: diary {diary['name']!r} has no questions to ask")
    return diaries


def fill(episodes: Sequence[Episode], path: Path, embed: Embed) -> ChatGraph:
    """Remember episodes in a new graph, whose vectors other runs may have; questions' are new."""
    with MemoryGraph.open(path, kept_encoder(EMBEDDER), TurnExtractor()) as graph:
        graph.remember_many(episodes)
        graph.ask_both("Who is it?")  # computes the vectors
    return ChatGraph(path, MemoryGraphConfig(), embed, read_only=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Fill graphs, ask, and print the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--diaries", nargs="*", type=Path, default=[DIARIES])
    parser.add_argument("--data", type=Path, help="folder with the benchmarks' files")
    parser.add_argument(
        "--benchmarks",
        nargs="*",
        choices=("locomo", "hotpotqa"),
        default=["locomo"],
        help="with --data: what is asked beside the diaries",
    )
    parser.add_argument("--episodes", type=int, help="with hotpotqa: sentences as episodes")
    parser.add_argument("--questions", type=int, help="of a benchmark's, draw so many; else all")
    parser.add_argument("--seed", type=int, default=0, help="random seed of what is drawn")
    parser.add_argument("--over", choices=get_args(Way), default="both")
    parser.add_argument("--reader", help="a checkpoint that answers from what is recalled")
    options = parser.parse_args(argv)
    embed = cached(make_embed(EMBEDDER))
    reader = None if options.reader is None else load_reader(options.reader).reader()
    with tempfile.TemporaryDirectory() as folder:
        for diaries in [read_diaries(path) for path in options.diaries]:
            for diary in diaries:
                episodes, asked = diary_questions(diary)
                where = Path(folder) / f"{diary['name']}.db"
                with closing(fill(episodes, where, embed)) as chat:
                    for group, scores in ask_all(chat, asked, options.over, reader).items():
                        print(scores.line(group), flush=True)
                    right, marked, wrong, others = ends(chat.graph, diary)
                    print(
                        f"{diary['name']}: {right} of {marked} ends right,"
                        f" {wrong} of {others} false"
                    )
        for benchmark in options.benchmarks if options.data else ():
            for group, scores in ask_benchmark(
                benchmark, options, Path(folder), embed, reader
            ).items():
                print(scores.line(group), flush=True)


def ask_benchmark(
    name: str,
    options: argparse.Namespace,
    folder: Path,
    embed: Embed,
    reader: RecollectionReader | None,
) -> dict[str, Scores]:
    """Ask the questions of LoCoMo or HotpotQA, and return the scores by group."""
    if name == "locomo":
        asking = list(locomo_questions(options.data))
    else:
        asking = [hotpotqa_questions(options.data, options.episodes)]
    if options.questions is not None:
        asking = drawn(asking, options.questions, options.seed)
    totals: dict[str, Scores] = defaultdict(Scores)
    for number, (episodes, asked) in enumerate(asking):
        with closing(fill(episodes, folder / f"{name}{number}.db", embed)) as chat:
            for group, scores in ask_all(chat, asked, options.over, reader).items():
                for total in {group, group.partition(",")[0]}:
                    totals[total].add(scores)
    return dict(sorted(totals.items()))


def drawn(
    asking: Sequence[tuple[list[Episode], list[Asked]]], count: int, seed: int
) -> list[tuple[list[Episode], list[Asked]]]:
    """Return so many questions that have evidence, drawn from all, each with its episodes."""
    answerable = [one for _, asked in asking for one in asked if one.evidence]
    if not 0 < count <= len(answerable):
        raise UserError(f"--questions {count}: must lie between 1 and {len(answerable)}")
    chosen = {id(one) for one in random.Random(seed).sample(answerable, count)}
    return [(episodes, [one for one in asked if id(one) in chosen]) for episodes, asked in asking]


if __name__ == "__main__":
    main()
