"""Writes the sample benchmark: conversations about countries and cities, with mixed evidence.

A conversation has five turns. Most leave out their subject ("And its currency?"), some return to
an earlier country, and about a third need two passages linked by an entity ("And of the country
to its south?"). Everything is drawn from a random seed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.cli import CommandParser, run_cli
from turngraph.data.jsonlines import write_conversations
from turngraph.data.sources.worldfacts_dialogue import SCRIPTS, Asked, make_dialogue
from turngraph.data.sources.worldfacts_facts import COMPASS, Country, Fact, load_world
from turngraph.data.sources.worldfacts_wording import render
from turngraph.data.types import Answer, Conversation, Evidence, Turn

logger = logging.getLogger(__name__)

SHARES = {"test": 0.22, "tune": 0.12, "train": 1.0}
CLUSTER = 6
POOL_SIZE = (40, 48)
PARALLELS, SURE_PARALLELS = 5, 2
TRIES_PER_SCRIPT = 300
MAX_TRIES = 30 * TRIES_PER_SCRIPT


def split_countries(world: dict[str, Country], seed: int) -> dict[str, dict[str, Country]]:
    """Split countries into train, tune and test; neighbours stay together where possible.

    Facts that lead from one part into another (a border) are removed, so that no part names a
    country or city of another one.
    """
    rng = random.Random(f"{seed}/split")
    left = list(world)
    rng.shuffle(left)
    parts: dict[str, dict[str, Country]] = {}
    for part, share in SHARES.items():
        codes: list[str] = []
        size = min(len(left), round(share * len(world)))
        while len(codes) < size:
            cluster = _cluster(world, left, min(CLUSTER, size - len(codes)))
            left = [code for code in left if code not in cluster]
            codes += cluster
        parts[part] = {code: _without_others(world[code], codes) for code in sorted(codes)}
    return parts


def _cluster(world: dict[str, Country], left: list[str], size: int) -> list[str]:
    """Return the first remaining country, its neighbours, and theirs."""
    cluster = left[:1]
    for code in cluster:
        facts = world[code].facts
        beside = {facts[side].values[0].id for side in COMPASS if side in facts}
        new = [n for n in world[code].near if n in left and n not in cluster]
        new.sort(key=lambda n: f"country:{n}" not in beside)
        cluster += new[: size - len(cluster)]
    return cluster


def _without_others(country: Country, codes: Sequence[str]) -> Country:
    inside = {f"country:{code}" for code in codes}
    facts = {
        name: fact
        for name, fact in country.facts.items()
        if all(v.id in inside or not v.id.startswith("country:") for v in fact.values)
    }
    return replace(country, facts=facts, near=tuple(n for n in country.near if n in codes))


def make_pool(
    rng: random.Random, countries: dict[str, Country], dialogue: Sequence[Asked], seed: int
) -> tuple[Evidence, ...] | None:
    """Return the evidence pool of a dialogue: the passages that answer it, and distractors.

    None if a needed fact cannot be stated without answering a two-passage question by itself.
    """
    needed = {fact.key: fact for asked in dialogue for fact in asked.facts}
    size = rng.randint(*POOL_SIZE)
    pool: dict[str, Evidence] = {}
    for number, fact in enumerate([*needed.values(), *_distractors(rng, countries, dialogue)]):
        passages = [p for p in render(fact, seed) if not _gives_away(p, dialogue)]
        if number < len(needed) and not passages:
            return None
        if number >= len(needed) and len(pool) >= size:
            break
        pool |= {passage.id: passage for passage in passages}
    passages = list(pool.values())
    rng.shuffle(passages)
    return tuple(passages)


def _gives_away(passage: Evidence, dialogue: Sequence[Asked]) -> bool:
    """Return whether one passage names both the anchor and the answer of a two-passage question."""
    names = {entity.id for entity in passage.entities}
    return any(
        asked.anchor is not None
        and asked.anchor.id in names
        and any(value.id in names for value in asked.facts[-1].values)
        for asked in dialogue
    )


def _distractors(
    rng: random.Random, countries: dict[str, Country], dialogue: Sequence[Asked]
) -> list[Fact]:
    """Yield in turns the same relations of other countries and other facts of the same."""
    subjects = {
        entity.id for asked in dialogue for f in asked.facts for entity in (f.subject, f.group)
    }
    topics = {code: c for code, c in countries.items() if c.entity.id in subjects}
    relations = {fact.relation: None for asked in dialogue for fact in asked.facts}
    sorts = [_parallels(rng, countries, topics, name) for name in relations]
    parallels = [fact for facts in sorts for fact in facts[SURE_PARALLELS:]]
    own = [fact for country in topics.values() for fact in country.facts.values()]
    towns = [town for country in topics.values() for town in country.cities.values()]
    own += [fact for town in rng.sample(towns, len(towns) // 3) for fact in town.values()]
    others = [fact for code, c in countries.items() if code not in topics for fact in _all_facts(c)]
    for group in (parallels, own, others):
        rng.shuffle(group)
    mixed = [fact for pair in zip(parallels, own, strict=False) for fact in pair]
    sure = [fact for facts in sorts for fact in facts[:SURE_PARALLELS]]
    return sure + mixed + parallels[len(own) :] + own[len(parallels) :] + others


def _all_facts(country: Country) -> list[Fact]:
    return [
        *country.facts.values(),
        *(f for town in country.cities.values() for f in town.values()),
    ]


def _parallels(
    rng: random.Random, countries: dict[str, Country], topics: dict[str, Country], relation: str
) -> list[Fact]:
    """Return the same relation of a few other countries or cities, close ones first."""
    regions = {country.region.id for country in topics.values()}
    near = {code for country in topics.values() for code in country.near}
    order = [country for code, country in countries.items() if code not in topics]
    rng.shuffle(order)
    order.sort(key=lambda c: (c.code in near, c.region.id in regions), reverse=True)
    groups = ([f for f in _all_facts(c) if f.relation == relation][:2] for c in order)
    return [fact for group in groups for fact in group][:PARALLELS]


def build_worldfacts(
    seed: int, num_train: int, num_tune: int, num_test: int
) -> dict[str, list[Conversation]]:
    """Return the sample benchmark as conversations by part; it depends only on the seed.

    Args:
        seed: random seed of the split, the wording, the dialogues and the pools.
        num_train, num_tune, num_test: number of conversations of each part.

    Raises:
        UserError: a part has less than one conversation.
    """
    counts = {"train": num_train, "tune": num_tune, "test": num_test}
    for part, count in counts.items():
        if count < 1:
            raise UserError(f"num_{part}: must be at least 1, not {count}")
    parts = split_countries(load_world(), seed)
    return {part: _conversations(part, parts[part], seed, n) for part, n in counts.items()}


def _conversations(
    part: str, countries: dict[str, Country], seed: int, count: int
) -> list[Conversation]:
    order = sorted(countries)
    random.Random(f"{seed}/{part}").shuffle(order)
    return [
        build_conversation(f"{part}-{i:03d}", countries, order[i % len(order)], seed)[0]
        for i in track(range(count), f"worldfacts {part}", "conversations", delay=2)
    ]


def build_conversation(
    id_: str, countries: dict[str, Country], first: str, seed: int
) -> tuple[Conversation, list[Asked]]:
    """Return a conversation with its pool, and the facts behind its questions.

    Args:
        id_: its id, which with the seed determines its random draws.
        countries: countries that it may be about, by code.
        first: code of the first country.
        seed: random seed of the benchmark.
    """
    rng = random.Random(f"{seed}/{id_}")
    for attempt in range(MAX_TRIES):
        # Not every country, and not every part, has the facts for every script.
        if attempt % TRIES_PER_SCRIPT == 0:
            script = rng.choice(SCRIPTS)
        keep = attempt % TRIES_PER_SCRIPT < TRIES_PER_SCRIPT // 2
        code = first if keep else rng.choice(sorted(countries))
        dialogue = make_dialogue(rng, countries, countries[code], script)
        if dialogue and (pool := make_pool(rng, countries, dialogue, seed)):
            turns = tuple(_turn(str(n), asked, pool) for n, asked in enumerate(dialogue))
            return Conversation(id_, "worldfacts", turns, pool), dialogue
    raise AssertionError(f"no dialogue found for {id_}")


def _turn(id_: str, asked: Asked, pool: tuple[Evidence, ...]) -> Turn:
    fact = asked.facts[-1]
    source = next(p.source for p in pool if p.id.startswith(f"{fact.key}/"))
    answers = tuple(Answer(value.label, value.id) for value in fact.values)
    return Turn(id_, asked.question, answers, source)


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.jsonl, tune.jsonl and test.jsonl."""
    parser = CommandParser(description="Write the sample benchmark about the world.")
    parser.add_argument("--output", type=Path, required=True, help="folder for the three files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_train", type=int, default=400, help="conversations")
    parser.add_argument("--num_tune", type=int, default=30, help="conversations")
    parser.add_argument("--num_test", type=int, default=60, help="conversations")
    args = parser.parse_args(argv)
    if args.output.exists() and not args.output.is_dir():
        raise UserError(f"{args.output}: --output must be a folder, this is a file")
    parts = build_worldfacts(args.seed, args.num_train, args.num_tune, args.num_test)
    for part, conversations in parts.items():
        write_conversations(args.output / f"{part}.jsonl", conversations)
        logger.info(
            "%s: %s", args.output / f"{part}.jsonl", plural(len(conversations), "conversation")
        )


if __name__ == "__main__":
    run_cli(main)
