"""Notes: made conversations over made documents."""

import itertools
import re
from pathlib import Path

import pytest

from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import read_conversations
from turngraph.data.normalise import normalise_text
from turngraph.data.sources.notes import ABOUT, main
from turngraph.data.sources.notes_kinds import KINDS
from turngraph.data.sources.notes_words import LISTS, words_of
from turngraph.data.types import NOT_IN_EVIDENCE, Conversation

PARTS = ("train", "tune", "test")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Conversation]]:
    folder = tmp_path_factory.mktemp("notes")
    main(["--output", str(folder), "--num_train", "60", "--num_tune", "8", "--num_test", "8"])
    return {part: read_conversations(folder / f"{part}.jsonl") for part in PARTS}


def test_pools_and_turns_have_their_sizes(made: dict[str, list[Conversation]]) -> None:
    assert [len(made[part]) for part in PARTS] == [60, 8, 8]
    for one in made["train"]:
        assert 15 <= len(one.evidence) <= 70
        assert 1 <= len(one.turns) <= 5
    sources = {passage.source for one in made["train"] for passage in one.evidence}
    assert sources == {"text", "table", "infobox"}


def test_answers_are_in_the_evidence_or_said_not_to_be(
    made: dict[str, list[Conversation]],
) -> None:
    questions = [(one, turn) for one in made["train"] for turn in one.turns]
    none = [turn for _, turn in questions if turn.answers[0].label == NOT_IN_EVIDENCE]
    assert 0.12 < len(none) / len(questions) < 0.3
    for one, turn in questions:
        assert len(turn.answers) == 1
        assert "{" not in turn.question
        answer = turn.answers[0]
        if answer.label != NOT_IN_EVIDENCE:
            holding = [p for p in one.evidence if answer.label in p.text]
            assert holding, (one.id, turn)
            ids = {entity.id for passage in holding for entity in passage.entities}
            assert answer.id is None or answer.id in ids


def test_nobody_arrives_before_the_departure(made: dict[str, list[Conversation]]) -> None:
    texts = {passage.text for one in made["train"] for passage in one.evidence}
    times = [re.search(r"Departs is (\S+), Arrives is (\d\d:\d\d)", text) for text in texts]
    found = [match.groups() for match in times if match]
    assert found
    assert all(departs <= arrives for departs, arrives in found)


def test_a_follow_up_that_names_a_subject_asks_for_what_was_asked(
    made: dict[str, list[Conversation]],
) -> None:
    about = [template.partition("{s}") for template in ABOUT]
    pairs = [pair for one in made["train"] for pair in itertools.pairwise(one.turns)]
    follow_ups = [
        (before, turn)
        for before, turn in pairs
        for start, _, _ in about
        if start and turn.question.startswith(start) and " the " not in turn.question
    ]
    assert len(follow_ups) > 5
    for before, _ in follow_ups:  # not a question for a name, as "Who lives in Lima?"
        assert not before.question.startswith(("Who lives", "Who has", "Whose pet", "Who took"))


def test_parts_share_no_words(made: dict[str, list[Conversation]]) -> None:
    for name in LISTS:
        parts = [set(words_of(part)[name]) for part in PARTS]
        assert all(parts)
        assert len(set.union(*parts)) == sum(map(len, parts))
    test_names = {normalise_text(name) for name in words_of("test")["first"]}
    texts = {passage.text for one in made["train"] for passage in one.evidence}
    assert not test_names & {word for text in texts for word in normalise_text(text).split()}


def test_the_same_seed_makes_the_same(made: dict[str, list[Conversation]], tmp_path: Path) -> None:
    small = ["--num_train", "3", "--num_tune", "1", "--num_test", "1"]
    main(["--output", str(tmp_path), *small])
    assert read_conversations(tmp_path / "train.jsonl") == made["train"][:3]
    main(["--output", str(tmp_path), *small, "--seed", "1"])
    assert read_conversations(tmp_path / "train.jsonl") != made["train"][:3]


def test_bad_options_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="must be a folder"):
        main(["--output", str(tmp_path / "file")])
    with pytest.raises(UserError, match="num_tune: must be at least 1"):
        main(["--output", str(tmp_path), "--num_tune", "0"])


def test_every_relation_is_asked_in_several_wordings() -> None:
    relations = {one for kind in KINDS for one in kind.relations}
    assert len(relations) > 20
    for one in relations:
        assert min(len(one.asks), len(one.its)) >= 3, one.key
