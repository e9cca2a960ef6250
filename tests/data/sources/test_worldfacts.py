from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from turngraph.data.jsonlines import read_conversations
from turngraph.data.normalise import fold, normalise_value
from turngraph.data.sources.worldfacts import (
    build_conversation,
    build_worldfacts,
    main,
    split_countries,
)
from turngraph.data.sources.worldfacts_dialogue import Asked
from turngraph.data.sources.worldfacts_facts import COMPASS, load_world
from turngraph.data.sources.worldfacts_wording import RELATIONS
from turngraph.data.types import Conversation, Entity, Evidence, query

ROOT = Path(__file__).parents[3]
FILES = ("train.jsonl", "tune.jsonl", "test.jsonl")
Parts = dict[str, list[tuple[Conversation, list[Asked]]]]


@pytest.fixture(scope="module")
def parts() -> Parts:
    """Conversations of every part with the facts behind their questions."""
    result = {}
    for part, countries in split_countries(load_world(), 0).items():
        codes = list(countries)
        result[part] = [
            build_conversation(f"{part}-{i:03d}", countries, codes[i % len(codes)], 0)
            for i in range(25)
        ]
    return result


@pytest.fixture(scope="module")
def everything(parts: Parts) -> list[tuple[Conversation, list[Asked]]]:
    return [pair for pairs in parts.values() for pair in pairs]


def places(passages: tuple[Evidence, ...]) -> set[str]:
    return {e.id for p in passages for e in p.entities if e.id.startswith(("country:", "city:"))}


def names_entity(text: str, entity: Entity) -> bool:
    names = (entity.label, *entity.mentions)
    return any(re.search(rf"(?<!\w){re.escape(fold(name))}(?!\w)", fold(text)) for name in names)


@pytest.mark.traced_processes
def test_same_seed_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    """The bytes are of the sizes that were asked for, and read back."""
    sizes = ["--num_train", "6", "--num_tune", "2", "--num_test", "4"]
    main(["--output", str(tmp_path / "here"), *sizes])
    command = [sys.executable, "-m", "turngraph.data.sources.worldfacts", *sizes]
    command += ["--output", str(tmp_path / "there")]
    environment = os.environ | {"PYTHONHASHSEED": "1"}  # here it is another one
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
    built = build_worldfacts(0, 6, 2, 4)
    for name, count in zip(FILES, (6, 2, 4), strict=True):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
        conversations = read_conversations(tmp_path / "here" / name)
        assert len(conversations) == count
        assert conversations == built[name.removesuffix(".jsonl")]


def test_another_seed_another_benchmark() -> None:
    one, other = (build_worldfacts(seed, 3, 1, 1)["train"] for seed in (0, 1))
    assert [c.turns for c in one] != [c.turns for c in other]


@pytest.mark.parametrize("part", ["train", "tune", "test"])
def test_a_part_without_conversations_is_refused(part: str) -> None:
    counts = {"num_train": 1, "num_tune": 1, "num_test": 1} | {f"num_{part}": 0}
    with pytest.raises(ValueError, match=f"num_{part}: must be at least 1, not 0"):
        build_worldfacts(0, **counts)


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ValueError, match="--output must be a folder"):
        main(["--output", str(tmp_path / "file"), "--num_train", "1"])
    assert (tmp_path / "file").read_text() == "kept"


def test_parts_share_no_country_and_no_city(parts: Parts) -> None:
    named = {p: set().union(*(places(c.evidence) for c, _ in pairs)) for p, pairs in parts.items()}
    assert all(named.values())
    assert not named["train"] & (named["tune"] | named["test"])
    assert not named["tune"] & named["test"]
    for part, pairs in parts.items():
        answers = {a.id for c, _ in pairs for t in c.turns for a in t.answers}
        assert {a for a in answers if a.startswith(("country:", "city:"))} <= named[part]


def test_the_parts_are_all_countries() -> None:
    world, split = load_world(), split_countries(load_world(), 0)
    codes = [code for countries in split.values() for code in countries]
    assert sorted(codes) == sorted(world)
    assert len(split["test"]) >= 30
    assert len(split["tune"]) >= 15
    assert len(split["train"]) >= 90


def test_no_question_names_a_place_of_another_part(parts: Parts) -> None:
    world, split = load_world(), split_countries(load_world(), 0)
    for part, pairs in parts.items():
        foreign = [world[c].entity for p, codes in split.items() for c in codes if p != part]
        own = {world[c].entity.label for c in split[part]}
        for conversation, _ in pairs:
            for turn in conversation.turns:
                text = turn.question
                for label in sorted(own, key=len, reverse=True):  # "South Sudan" is not "Sudan"
                    text = text.replace(label, "")
                assert not [e.label for e in foreign if names_entity(text, e)], turn.question


def test_every_answer_stands_in_the_pool(everything: list) -> None:
    for conversation, _ in everything:
        for turn in conversation.turns:
            assert turn.answers
            for answer in turn.answers:
                stated = [
                    passage
                    for passage in conversation.evidence
                    if any(e.id == answer.id and e.label == answer.label for e in passage.entities)
                    and names_entity(passage.text, Entity("", answer.label))
                ]
                assert turn.source in {passage.source for passage in stated}, (
                    turn,
                    conversation.id,
                )


def test_every_entity_is_named_in_its_passage(everything: list) -> None:
    for conversation, _ in everything:
        for passage in conversation.evidence:
            assert len({e.id for e in passage.entities}) == len(passage.entities) >= 2
            for entity in passage.entities:
                assert names_entity(passage.text, entity), passage


def test_all_sources_occur_in_pools_and_as_answers(parts: Parts) -> None:
    for pairs in parts.values():
        for conversation, _ in pairs:
            assert {p.source for p in conversation.evidence} == {"kb", "text", "table", "infobox"}
        answering = Counter(turn.source for c, _ in pairs for turn in c.turns)
        assert set(answering) == {"kb", "text", "table", "infobox"}
        assert min(answering.values()) >= 0.1 * sum(answering.values())


def test_a_third_of_the_questions_need_two_passages(parts: Parts) -> None:
    for pairs in parts.values():
        asked = [a for _, dialogue in pairs for a in dialogue]
        joined = [a for a in asked if len(a.facts) == 2]
        assert 0.2 <= len(joined) / len(asked) <= 0.45
        assert all((a.anchor is not None) == (len(a.facts) == 2) for a in asked)


def test_no_passage_alone_names_anchor_and_answer_of_a_joined_question(everything: list) -> None:
    for conversation, dialogue in everything:
        for asked in dialogue:
            if asked.anchor is None:
                continue
            answers = {value.id for value in asked.facts[-1].values}
            for passage in conversation.evidence:
                ids = {entity.id for entity in passage.entities}
                assert not (asked.anchor.id in ids and answers & ids), (asked, passage)


def test_two_passages_of_a_joined_question_share_an_entity_and_are_in_the_pool(
    everything: list,
) -> None:
    for conversation, dialogue in everything:
        for asked in dialogue:
            passages = [
                [p for p in conversation.evidence if p.id.startswith(f"{fact.key}/")]
                for fact in asked.facts
            ]
            assert all(passages)
            if len(asked.facts) == 2:
                first, second = ({e.id for e in group[0].entities} for group in passages)
                assert asked.anchor.id in first
                assert first & second


def test_a_joined_question_does_not_name_the_entity_that_joins(everything: list) -> None:
    for conversation, dialogue in everything:
        for turn, asked in zip(conversation.turns, dialogue, strict=True):
            if len(asked.facts) == 2:
                link, last = asked.facts
                (joint,) = {link.subject, *link.values} & {last.subject, *last.values}
                bare = turn.question.replace(asked.anchor.label, "")
                assert not names_entity(bare, joint), turn.question


def test_five_turns_and_some_leave_their_subject_unsaid(everything: list) -> None:
    for conversation, dialogue in everything:
        assert len(conversation.turns) == 5
        assert conversation.domain == "worldfacts"
        unsaid = [a for a in dialogue if not names_entity(a.question, a.facts[-1].subject)]
        assert unsaid, conversation.id


def test_pools_are_of_the_promised_size_and_short(everything: list) -> None:
    for conversation, _ in everything:
        assert 40 <= len(conversation.evidence) <= 60
        assert len({passage.id for passage in conversation.evidence}) == len(conversation.evidence)
        assert len({passage.text for passage in conversation.evidence}) == len(
            conversation.evidence
        )
    words = [len(p.text.split()) for c, _ in everything for p in c.evidence]
    assert sum(words) / len(words) < 12


def test_no_question_is_answered_twice_in_a_conversation(everything: list) -> None:
    for _, dialogue in everything:
        keys = [asked.facts[-1].key for asked in dialogue]
        assert len(set(keys)) == len(keys)


def test_texts_are_clean(everything: list) -> None:
    for conversation, _ in everything:
        texts = [t.question for t in conversation.turns] + [p.text for p in conversation.evidence]
        for text in texts:
            assert text == " ".join(text.split())
            assert not re.search(r"[{}]|\bNone\b|, ,|\bthe the\b|[^\w.?²]$", text, re.IGNORECASE), (
                text
            )
        assert all(p.text[0].isupper() or p.text[0].isdigit() for p in conversation.evidence)
        assert all(t.question[0].isupper() and t.question[-1] == "?" for t in conversation.turns)
        assert query([], conversation.turns[0].question) == conversation.turns[0].question


def test_facts_are_plausible() -> None:
    world = load_world()
    assert len(world) >= 140
    peru = {name: [v.label for v in fact.values] for name, fact in world["PE"].facts.items()}
    assert peru["capital"] == ["Lima"]
    assert peru["currency"] == ["Sol"]
    assert peru["calling code"] == ["+51"]
    assert peru["south"] == ["Chile"]
    for country in world.values():
        total = country.facts.get("population")
        for name in ("population", "area"):
            if name in country.facts:
                assert int(country.facts[name].values[0].id) > 0
        for facts in country.cities.values():
            people = int(facts["city population"].values[0].id)
            assert people >= 30_000
            assert total is None or people <= int(total.values[0].id)
        for side in COMPASS:
            if side in country.facts:
                assert country.facts[side].values[0].id.removeprefix("country:") in country.near
        assert set(country.facts) <= set(RELATIONS)


def test_labels_and_ids_go_together() -> None:
    ids: dict[str, set[str]] = {}
    for country in load_world().values():
        towns = [fact for town in country.cities.values() for fact in town.values()]
        for fact in [*country.facts.values(), *towns]:
            for entity in (fact.subject, fact.group, *fact.values):
                for name in (entity.label, *entity.mentions):
                    ids.setdefault(normalise_value(name), set()).add(entity.id)
    assert {name: found for name, found in ids.items() if len(found) > 1} == {}


def test_pronouns_mean_what_was_said_before(everything: list) -> None:
    said = Counter()
    for conversation, dialogue in everything:
        for number, (turn, asked) in enumerate(zip(conversation.turns, dialogue, strict=True)):
            subject = asked.facts[-1].subject.id
            before = conversation.turns[number - 1].answers
            if "that country" in turn.question:
                assert [answer.id for answer in before] == [subject], turn.question
                said["that country"] += 1
            elif "live there" in turn.question:
                assert [answer.id for answer in before] == [subject], turn.question
                said["there"] += 1
            elif "first country" in turn.question or "started with" in turn.question:
                assert subject == dialogue[0].facts[-1].subject.id, turn.question
                said["first"] += 1
    assert min(said["that country"], said["there"], said["first"]) >= 2
