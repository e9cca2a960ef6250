"""BM25: both libraries rank alike, ties go by position, any text can be ranked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngraph.data.normalise import words
from turngraph.data.retrieval.bm25 import (
    MAX_SIMILAR_WORDS,
    EvidenceIndex,
    Ranker,
    best,
    cut_query,
    terms,
)
from turngraph.data.retrieval.similar_terms import LEAST, MOST_TERMS, SimilarTerms
from turngraph.data.types import Evidence

RANKERS: tuple[Ranker, ...] = ("bm25s", "rank_bm25")
VOCABULARY = st.sampled_from(
    "lima peru capital the river 1967 日本 किताब Ärger ARGER ... 😀".split()
)
TEXTS = st.lists(VOCABULARY, max_size=12).map(" ".join)


def make_pool(texts: list[str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"e{i}", text, "text") for i, text in enumerate(texts))


def ranked(texts: list[str], query: str, ranker: Ranker = "bm25s", top_k: int = 99) -> list[str]:
    index = EvidenceIndex(make_pool(texts), ranker)
    return [item.evidence.id for item in index.rank(query, top_k)]


@settings(max_examples=60)
@given(st.lists(TEXTS, max_size=10), TEXTS)
def test_both_libraries_score_and_rank_alike(texts: list[str], query: str) -> None:
    fast, reference = (EvidenceIndex(make_pool(texts), ranker) for ranker in RANKERS)
    assert np.allclose(fast.scores(query), reference.scores(query), atol=1e-5)
    assert [r.evidence for r in fast.rank(query, 99)] == [
        r.evidence for r in reference.rank(query, 99)
    ]


@settings(max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=8), TEXTS, st.integers(1, 9))
def test_best_first_ties_by_position_and_no_more_than_top_k(
    texts: list[str], query: str, top_k: int
) -> None:
    pool = make_pool(texts + texts)  # every passage ties with its copy
    index = EvidenceIndex(pool)
    scores = index.query_scores(query)
    found = index.rank(query, top_k, turn=3)
    order = sorted(range(len(pool)), key=lambda i: (-scores[i], i))
    expected = [i for i in order if scores[i] > 0][:top_k]
    assert [pool.index(item.evidence) for item in found] == expected
    assert [item.score for item in found] == [scores[i] for i in expected]
    assert {item.from_turn for item in found} <= {3}
    assert np.array_equal(scores[: len(texts)], scores[len(texts) :])


def test_a_hand_computed_score() -> None:
    # N 2, mean length 2; "lima" occurs once, in the passage of length 3: idf ln((2 + 1) / 1)
    index = EvidenceIndex(make_pool(["lima in peru", "chad"]))
    length = 1.5 * (1 - 0.75 + 0.75 * 3 / 2)
    expected = np.log(3) * (1 + 2.5 / (1 + length))
    assert index.scores("Lima") == pytest.approx([expected, np.log(3)], abs=1e-5)


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_word_asked_for_twice_counts_twice(ranker: Ranker) -> None:
    texts = ["lima lima", "peru capital", "nothing"]
    index = EvidenceIndex(make_pool(texts), ranker)
    once, twice = index.scores("lima"), index.scores("lima lima")
    assert twice == pytest.approx(2 * once, abs=1e-5)
    assert ranked(texts, "lima peru", ranker)[0] == "e0"
    assert ranked(texts, "lima peru peru peru", ranker)[0] == "e1"


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("query", ["", "   ", "?!", "unknown words only", "😀"])
def test_a_query_that_matches_nothing_finds_nothing(ranker: Ranker, query: str) -> None:
    assert ranked(["b", "a", "", "c"], query, ranker) == []


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("texts", [[], [""], ["", "..."]])
def test_pools_with_nothing_to_count(ranker: Ranker, texts: list[str]) -> None:
    assert ranked(texts, "lima", ranker) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ÄRGER", "der Arger"),
        ("strasse", "Straße"),
        ("日本の首都", "東京は日本にある"),
        ("किताब", "यह किताब है"),
        ("ประเทศไทย", "กรุงเทพ ประเทศไทย"),
        ("Москва", "МОСКВА столица"),
        ("１９６７", "in 1967"),
    ],
)
def test_any_script_finds_its_passage(query: str, text: str) -> None:
    assert ranked(["lima in peru", "the kitab", text], query)[0] == "e2"


def test_words_of_scripts_without_spaces_are_characters_and_vowel_signs_stay_in_words() -> None:
    assert words("Lima 東京 किताब") == ["lima", "東", "京", "किताब"]
    assert words("A-b, c_d (1,5)") == ["a", "b", "c_d", "1", "5"]
    assert terms("の 東 東京 のは") == ["の", "東", "東", "京", "東京", "のは"]


@given(st.text(st.sampled_from("ab é日本कि-, \n"), max_size=40), st.integers(1, 5))
def test_what_is_left_of_a_query_is_its_end(query: str, max_words: int) -> None:
    left = cut_query(query, max_words)
    assert query.endswith(left)
    assert words(left) == words(query)[-max_words:]


def test_a_query_has_128_words_and_an_index_is_made_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert cut_query("a " * 127 + "b") == "a " * 127 + "b"
    assert cut_query("a " * 127 + "b c") == "a " * 126 + "b c"
    caplog.set_level("INFO")
    assert ranked(["lima"], "lima") == ["e0"]
    assert not caplog.records


@settings(max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS, TEXTS)
def test_turns_of_equal_weight_are_one_query(texts: list[str], old: str, new: str) -> None:
    index = EvidenceIndex(make_pool(texts))
    together = {r.evidence.id: r.score for r in index.rank(f"{old} {new}", 99)}
    apart = {r.evidence.id: r.score for r in index.rank([(old, 1.0), (new, 1.0)], 99)}
    assert apart == pytest.approx(together, abs=1e-5)


def test_an_old_turn_has_its_weight() -> None:
    index = EvidenceIndex(make_pool(["lima peru river", "capital of chad", "the sea"]))
    old, new = index.scores("lima peru river"), index.scores("capital")
    found = {
        r.evidence.id: r.score for r in index.rank([("lima peru river", 0.25), ("capital", 1)], 9)
    }
    expected = 0.25 * (old - old[2]) + new - new[2]  # the last one has no word
    assert found == pytest.approx({f"e{i}": expected[i] for i in range(2)}, abs=1e-5)


@pytest.mark.parametrize("ranker", RANKERS)
def test_stems_join_the_forms_of_a_word(ranker: Ranker) -> None:
    pool = make_pool(["who knows who likes lima", "there they die"])
    for stemmer, expected in (("none", []), ("english", ["e1"])):
        index = EvidenceIndex(pool, ranker, stemmer)  # type: ignore[arg-type]
        assert [item.evidence.id for item in index.rank([("Dying", 1.0)], 1)] == expected


def test_terms_are_words_or_their_stems() -> None:
    assert terms("Maintained ÄRGER, 1967") == ["maintained", "arger", "1967"]
    assert terms("Maintained ÄRGER, 1967", "english") == ["maintain", "arger", "1967"]
    assert terms("", "english") == []
    assert terms("日本 首") == ["日", "本", "日本", "首"]


def test_without_its_library_a_stemmer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    message = r"evidence.stemmer needs Stemmer: pip install 'turngraph\[stems\]'"
    with pytest.raises(ValueError, match=message):
        EvidenceIndex(make_pool(["lima"]), stemmer="english")
    assert terms("lima", "none") == ["lima"]


def test_jax_is_not_started_where_it_is_installed(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("")
    code = """
import sys
import turngraph.data.corpus.bm25_files, turngraph.data.memory_graph.recall.filter_facts
assert "jax" not in sys.modules
import jax
assert jax.__file__, "ours to import still"
"""
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


ENDINGS = {
    "Arabic": ("العاصمة المصرية؟", "القاهرة عاصمة مصر.", "النهر طويل جدا."),
    "Russian": ("Столицей России?", "Москва, столица, Россия", "Река течёт на юг."),
}


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize(("query", "gold", "other"), ENDINGS.values(), ids=ENDINGS.keys())
def test_words_with_other_endings_find_their_passage(
    query: str, gold: str, other: str, ranker: Ranker
) -> None:
    found = EvidenceIndex(make_pool([other, gold, other]), ranker).rank(query, 3)
    assert [item.evidence.text for item in found][:1] == [gold]
    assert all(item.score < found[0].score for item in found[1:])


def test_what_scores_0_is_no_result() -> None:
    assert ranked(["chad", "peruvian", "norway"], "Peruvians") == ["e1"]
    assert ranked(["chad", "peruvian"], "lima") == []


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_passage_without_a_word_is_no_result_beside_one_with_a_word(ranker: Ranker) -> None:
    pool = ["peru and lima", "chad", "the sea of peru"]
    assert ranked(pool, "peru, lima?", ranker) == ["e0", "e2"]
    assert ranked(pool, "lima peruvian", ranker) == ["e0", "e2"]
    scores = EvidenceIndex(make_pool(pool), ranker).query_scores([("lima", 0.4), ("sea", 1.0)])
    assert (scores > 0).tolist() == [True, False, True]


def test_another_spelling_stands_for_a_word_that_no_passage_has() -> None:
    index = EvidenceIndex(make_pool(["the flag", "peru, its capitals", "chad"]))
    for query in ("the capital", "capital", "vlag capital"):
        assert index.scores(query)[1] > index.scores("the")[1]
    assert index.scores("capital").argmax() == 1


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_word_that_no_passage_has_scores_as_the_most_similar_term(ranker: Ranker) -> None:
    texts = ["capital capitol", "capitol hill", "the capital", "chad"]
    index = EvidenceIndex(make_pool(texts), ranker)
    similar = SimilarTerms({word for text in texts for word in text.split()}).like("capitals")
    assert len(similar) == 2
    expected = [
        max(share * index.scores(term)[i] * (term in text.split()) for term, share in similar)
        for i, text in enumerate(texts)
    ]
    assert index.query_scores("capitals") == pytest.approx(expected, abs=1e-5)


@given(
    st.sets(st.text("abc", min_size=1, max_size=8), max_size=40),
    st.text("abc", min_size=5, max_size=8),
)
def test_similar_terms_are_those_of_the_definition(known: set[str], word: str) -> None:
    def grams(term: str) -> set[str]:
        return {f"^{term}"[i : i + 3] for i in range(max(len(term) - 1, 1))}

    shares = {
        term: 2 * len(grams(term) & grams(word)) / (len(grams(term)) + len(grams(word)))
        for term in sorted(known)
        if len(term) > 1
    }
    expected = sorted(((t, s) for t, s in shares.items() if s >= LEAST), key=lambda pair: -pair[1])
    assert SimilarTerms(known).like(word) == expected[:MOST_TERMS]


def test_similar_terms_share_half_of_their_ngrams() -> None:
    similar = SimilarTerms({"capital", "capitol", "cap", "서울은", "서울에는", "首"})
    assert [term for term, _ in similar.like("capitals")] == ["capital", "capitol"]
    assert similar.like("capital")[0] == ("capital", 1.0)
    assert [bool(similar.like("capital"[:size])) for size in (4, 5)] == [False, True]
    assert SimilarTerms({"서"}).like("서울") == []  # one syllable is too little to be similar
    assert SimilarTerms({"서울"}).like("서울은") == [("서울", 0.8)]
    assert [term for term, _ in similar.like("서울")] == ["서울은", "서울에는"]
    assert similar.like("x") == similar.like("首") == similar.like("zzz") == []


def test_so_many_words_of_a_query_are_compared_as_similar_ones() -> None:
    index = EvidenceIndex(make_pool(["capitals", "harbour"]))
    for num, found in ((MAX_SIMILAR_WORDS - 1, True), (MAX_SIMILAR_WORDS, False)):
        assert bool(index.rank("capital" + " unknown" * num, 1)) == found


def test_many_similar_terms_are_cut() -> None:
    terms_ = [f"capital{letter}" for letter in "abcdefghijkl"]
    assert len(SimilarTerms(terms_).like("capital")) == MOST_TERMS


def test_few_passages_with_a_word_are_filled_up_from_the_start() -> None:
    scores = np.array([0.0] * 98 + [1.0, 2.0])
    assert best(scores, 2) == [99, 98]
    assert best(scores, 5) == [99, 98, 0, 1, 2]
