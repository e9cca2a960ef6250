"""Writes made conversations over made documents: clubs, firms, products, diaries, chats, tables.

The documents are text, Markdown and CSV, and become passages as users' files do
(``readers.TEXT_READERS``, ``find_entities``). Every fact is stated once. A fifth of the questions
is about what no passage states, though similar things are; their answer is ``NOT_IN_EVIDENCE``.
Everything is drawn from a random seed, and the parts share no names or things.
"""

from __future__ import annotations

import csv
import io
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.entities import find_entities
from turngraph.data.jsonlines import write_conversations
from turngraph.data.normalise import normalise_value
from turngraph.data.sources.document import PassageLimit
from turngraph.data.sources.notes_kinds import KINDS, Kind, Relation
from turngraph.data.sources.notes_words import MONTHS, make_values, words_of
from turngraph.data.sources.readers import TEXT_READERS, with_ids
from turngraph.data.types import NOT_IN_EVIDENCE, Answer, Conversation, Evidence, Turn

logger = logging.getLogger(__name__)

POOL_SIZE = (15, 60)
TURNS = (1, 5)
UNANSWERABLE = 0.2
UNSTATED = 0.25
"""Share of the facts of a subject that its document leaves out."""
UNKNOWN_SUBJECT = 0.3
"""Share of the unanswerable questions that are about a subject which no document names."""
HASTY = 0.12
"""Share of the questions in small letters, without a mark."""
ABOUT = ("What about {s}?", "And {s}?", "How about {s}?", "And for {s}?", "{s}?", "Same for {s}?")
SMALL_TALK = (
    "The weather was mild.", "Nothing else to report.", "It rained all morning.",
    "I slept badly.", "More soon.", "That is all for today.", "Thanks for everything.",
    "I hope you are well.", "See you soon!", "What a week.", "The days are getting shorter.",
    "I must hurry now.",
)  # fmt: skip


@dataclass
class Made:
    """A made document.

    Args:
        kind: its kind.
        facts: values that it states, by subject and key.
        unstated: (subject, key) pairs that it leaves out.
        passages: its passages, as the readers return them.
    """

    kind: Kind
    facts: dict[tuple[str, str], str] = field(default_factory=dict)
    unstated: list[tuple[str, str]] = field(default_factory=list)
    passages: list[Evidence] = field(default_factory=list)


class Pool:
    """Draws the documents of one conversation; no two are about one subject.

    Args:
        rng: random numbers.
        part: part of the data whose words are used.
    """

    def __init__(self, rng: random.Random, part: str) -> None:
        self.rng, self.words = rng, words_of(part)
        self.taken: set[str] = set()
        self.titles: set[str] = set()
        self.documents: list[Made] = []

    def draw(self, kind: str, is_subject: bool = False) -> str | None:
        """Return a value of a kind; None if it is to be a subject, and all names are taken."""
        for _ in range(200):
            value = make_values(self.rng, self.words)[kind]
            names = {value, value.split()[0]} if kind == "person" else {value}
            if self.taken.isdisjoint(names):
                self.taken |= names
                return value
        return None if is_subject else value

    def add(self, kind: Kind) -> Made | None:
        """Add a document of a kind; None if all names of subjects are taken."""
        count = {"chat": self.rng.randint(3, 4), "table": self.rng.randint(4, 7)}
        drawn = [self.draw(kind.subject, True) for _ in range(count.get(kind.layout, 1))]
        subjects = [subject for subject in drawn if subject is not None]
        if not subjects:
            return None
        made = Made(kind)
        title = self.rng.choice(kind.titles)
        title = title.format(s=subjects[0], **make_values(self.rng, self.words))
        if title in self.titles:
            title += f" ({len(self.titles)})"
        self.titles.add(title)
        year = str(self.rng.randint(2015, 2027))
        for subject in subjects:
            for relation in kind.relations:
                value = self.draw(relation.value)
                if value is not None and relation.value == "date":
                    value = value[:-4] + year
                if value is None or self.rng.random() < UNSTATED:
                    made.unstated.append((subject, relation.key))
                else:
                    made.facts[subject, relation.key] = value
            _order_times(made.facts, subject)
        suffix, text = LAYOUTS[kind.layout](self.rng, made, title, subjects)
        path = Path(f"{title}{suffix}".replace("/", "-"))
        passages = TEXT_READERS[suffix](text, path, PassageLimit(path, len(text)))
        made.passages = with_ids(passages, path.name)
        self.documents.append(made)
        return made

    def evidence(self) -> tuple[Evidence, ...]:
        """Return the passages of all documents with their entities, documents in any order."""
        documents = self.rng.sample(self.documents, len(self.documents))
        passages = [passage for made in documents for passage in made.passages]
        ids = {passage.id for passage in passages}
        assert len(ids) == len(passages)
        return tuple(find_entities(passages, extend=True))

    @property
    def size(self) -> int:
        """Number of passages."""
        return sum(len(made.passages) for made in self.documents)


def _order_times(facts: dict[tuple[str, str], str], subject: str) -> None:
    """Exchange the times of a departure and an arrival that comes before it."""
    there, back = (subject, "Arrives"), (subject, "Departs")
    if there in facts and back in facts and facts[there] < facts[back]:
        facts[there], facts[back] = facts[back], facts[there]


def article(noun: str) -> str:
    """Return "a" or "an"."""
    return "an" if noun[0].lower() in "aeio" else "a"


def _page(rng: random.Random, made: Made, title: str, subjects: Sequence[str]) -> tuple[str, str]:
    """Write a page: some facts at its head, others as sentences or items."""
    relations = [
        relation for relation in made.kind.relations if (subjects[0], relation.key) in made.facts
    ]
    num_head = rng.randint(0, len(relations))
    heads = rng.sample(relations, num_head)
    lines = [f"{relation.key}: {made.facts[subjects[0], relation.key]}" for relation in heads]
    bullet = rng.choice(("", "", "- "))
    said = [
        f"{bullet}{_said(rng, relation, made, subjects[0])}"
        for relation in relations
        if relation not in heads
    ]
    rng.shuffle(said)
    front = "\n".join(["---", *lines, "---", ""]) if lines else ""
    return ".md", f"{front}# {title}\n\n" + ("\n" if bullet else " ").join(said) + "\n"


def _said(rng: random.Random, one: Relation, made: Made, subject: str) -> str:
    value = made.facts[subject, one.key]
    text = rng.choice(one.says).format(s=subject, v=value, a=article(value))
    return text[0].upper() + text[1:]


def _table(rng: random.Random, made: Made, title: str, subjects: Sequence[str]) -> tuple[str, str]:
    """Write a table as CSV or Markdown, with empty cells where nothing is known."""
    keys = [relation.key for relation in made.kind.relations]
    rows = [[made.kind.header, *keys]]
    rows += [[name, *(made.facts.get((name, key), "") for key in keys)] for name in subjects]
    if rng.random() < 0.4:
        file = io.StringIO()
        csv.writer(file).writerows(rows)
        return ".csv", file.getvalue()
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * (len(keys) + 1))
    return ".md", f"# {title}\n\n" + "\n".join(lines) + "\n"


def _own_words(rng: random.Random, made: Made, subject: str) -> list[str]:
    said = [
        _said(rng, relation, made, subject)
        for relation in made.kind.relations
        if (subject, relation.key) in made.facts
    ]
    rng.shuffle(said)
    return said


def _diary(rng: random.Random, made: Made, title: str, subjects: Sequence[str]) -> tuple[str, str]:
    """Write a diary: entries under days."""
    text, month = f"# {title}\n", rng.choice(MONTHS)
    for day, sentence in enumerate(_own_words(rng, made, subjects[0]), rng.randint(1, 20)):
        text += f"\n## {day} {month}\n\n{sentence} {rng.choice(SMALL_TALK)}\n"
    return ".md", text


def _letter(rng: random.Random, made: Made, title: str, subjects: Sequence[str]) -> tuple[str, str]:
    """Write a letter."""
    said = _own_words(rng, made, subjects[0])
    said.insert(rng.randint(0, len(said)), rng.choice(SMALL_TALK))
    end = rng.choice(("Yours,", "With love,", "Best wishes,", "Greetings,"))
    text = f"Dear {rng.choice(('friend', 'cousin', 'neighbour', 'all'))},\n\n"
    return ".txt", text + " ".join(said) + f"\n\n{end} {subjects[0]}\n"


def _chat(rng: random.Random, made: Made, title: str, subjects: Sequence[str]) -> tuple[str, str]:
    """Write a chat: lines of a name and a message."""
    lines = [
        f"{subject.split()[0]}: {sentence}"
        for subject in subjects
        for sentence in [*_own_words(rng, made, subject), rng.choice(SMALL_TALK)]
    ]
    rng.shuffle(lines)
    return ".txt", "\n".join(lines) + "\n"


Writer = Callable[[random.Random, Made, str, Sequence[str]], tuple[str, str]]
LAYOUTS: dict[str, Writer] = {
    "page": _page,
    "table": _table,
    "diary": _diary,
    "letter": _letter,
    "chat": _chat,
}


class Talk:
    """A conversation about a pool's documents.

    Args:
        rng: random numbers.
        pool: the documents.
        documents: the documents that questions are about.
    """

    def __init__(self, rng: random.Random, pool: Pool, documents: Sequence[Made]) -> None:
        self.rng, self.pool, self.documents = rng, pool, documents
        self.turns: list[tuple[str, str]] = []
        self.asked: set[tuple[str, str]] = set()
        self.last: tuple[Made, str, str] | None = None
        self.last_was_which = False

    def ask(self) -> None:
        """Add a question: a follow-up where one is possible, else in full."""
        is_answerable = self.rng.random() >= UNANSWERABLE
        choices = [
            (made, subject, key)
            for made in self.documents
            for subject, key in (made.facts if is_answerable else made.unstated)
            if (subject, key) not in self.asked
        ]
        if not choices:
            return
        made, subject, key = self.rng.choice(self._near(choices))
        if not is_answerable and self.rng.random() < UNKNOWN_SUBJECT:
            subject = self.pool.draw(made.kind.subject, is_subject=True) or subject
        relation = next(relation for relation in made.kind.relations if relation.key == key)
        value = made.facts.get((subject, key))
        question, answer = self._worded(made, subject, relation, value)
        self.turns.append((self._typed(question), answer))
        self.asked.add((subject, key))
        self.last = made, subject, key

    def _typed(self, question: str) -> str:
        """Return a question with a capital and its mark, or as people type in a hurry."""
        if self.rng.random() < HASTY:
            return question.lower().rstrip("?.")
        return question[0].upper() + question[1:]

    def _near(self, choices: list[tuple[Made, str, str]]) -> list[tuple[Made, str, str]]:
        """Return choices about the last subject, or the last relation, or all."""
        if self.last is None or self.rng.random() < 0.25:
            return choices
        _, subject, key = self.last
        near = [choice for choice in choices if (choice[1] == subject) != (choice[2] == key)]
        return near or choices

    def _worded(
        self, made: Made, subject: str, one: Relation, value: str | None
    ) -> tuple[str, str]:
        name = subject
        if made.kind.layout == "chat" or (
            made.kind.subject == "person" and self.rng.random() < 0.4
        ):
            name = subject.split()[0]
        answer, follows = value or NOT_IN_EVIDENCE, not self.last_was_which
        self.last_was_which = False
        if self.last is not None and self.last[0].kind.name == made.kind.name:
            if self.last[1] == subject:
                return self.rng.choice(one.its), answer
            if self.last[2] == one.key and follows:
                return self.rng.choice(ABOUT).format(s=name), answer
        if value is not None and one.which and self._is_once(value) and self.rng.random() < 0.2:
            self.last_was_which = True
            answer = name if made.kind.layout == "chat" else subject
            return self.rng.choice(one.which).format(v=value, a=article(value)), answer
        return self.rng.choice(one.asks).format(s=name), answer

    def _is_once(self, value: str) -> bool:
        documents = self.pool.documents
        return sum(one == value for made in documents for one in made.facts.values()) == 1


def build_conversation(id_: str, part: str, seed: int) -> Conversation:
    """Return a conversation with its pool.

    Args:
        id_: its id, which with the seed determines its random draws.
        part: train, tune or test.
        seed: random seed.
    """
    rng = random.Random(f"notes {seed} {id_}")
    pool = Pool(rng, part)
    kinds = rng.sample(list(KINDS), rng.choice((1, 2)))
    made = [pool.add(kind) for kind in kinds for _ in range(2)]
    topics = [document for document in made if document is not None]
    while pool.size < POOL_SIZE[0] or (pool.size < 45 and rng.random() < 0.5):
        pool.add(rng.choice(KINDS))
    talk = Talk(rng, pool, topics)
    length = rng.randint(*TURNS)
    while len(talk.turns) < length:
        talk.ask()
    evidence = pool.evidence()
    entity_ids = {entity.id for passage in evidence for entity in passage.entities}
    turns = tuple(
        _turn(str(number), question, answer, entity_ids)
        for number, (question, answer) in enumerate(talk.turns)
    )
    return Conversation(f"{part}-{id_}", "notes", turns, evidence)


def _turn(id_: str, question: str, answer: str, known: set[str]) -> Turn:
    norm = normalise_value(answer)
    return Turn(id_, question, (Answer(answer, norm if norm in known else None),))


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.jsonl, tune.jsonl and test.jsonl of made conversations over made documents."""
    parser = CommandParser(prog="python -m turngraph.data.sources.notes", description=main.__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the three files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_train", type=int, default=300, help="conversations")
    parser.add_argument("--num_tune", type=int, default=40, help="conversations")
    parser.add_argument("--num_test", type=int, default=60, help="conversations")
    args = parser.parse_args(argv)
    if args.output.exists() and not args.output.is_dir():
        raise UserError(f"{args.output}: --output must be a folder, this is a file")
    counts = {"train": args.num_train, "tune": args.num_tune, "test": args.num_test}
    for part, count in counts.items():
        if count < 1:
            raise UserError(f"num_{part}: must be at least 1, not {count}")
    # without a line for each file
    logging.getLogger("turngraph.data.sources.readers").setLevel(logging.WARNING)
    for part, count in counts.items():
        path = args.output / f"{part}.jsonl"
        numbers = track(range(count), f"notes {part}", "conversations", delay=2)
        made = [build_conversation(f"{i:04d}", part, args.seed) for i in numbers]
        write_conversations(path, made)
        turns = [turn for conversation in made for turn in conversation.turns]
        none = sum(turn.answers[0].label == NOT_IN_EVIDENCE for turn in turns)
        logger.info(
            "%s: %s, %s, %d unanswerable",
            path,
            plural(len(made), "conversation"),
            plural(len(turns), "question"),
            none,
        )


if __name__ == "__main__":
    run_cli(main)
