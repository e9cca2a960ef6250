"""Finds sentences that are surely not English, which the English rules must not read.

In doubt a sentence counts as English, so that no English sentence is skipped. Only words in lower
case decide, since names come from all languages. On short notes lingua takes a minute and 1.1 GB to
start and calls "Björk performed in Reykjavík." Icelandic; py3langid takes 7 s and calls "Anna lives
in Gdynia." Latin. simplemma's English dictionary takes a second and 15 MB.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from turngraph.configs.extras import extra
from turngraph.data.normalise import normal_form

UNNAMED = "another language"
SCRIPTS = {
    "CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean",
    "GREEK": "Greek", "HEBREW": "Hebrew", "THAI": "Thai", "GEORGIAN": "Georgian",
    "ARMENIAN": "Armenian",
}  # fmt: skip
"""Languages by a script that only they use; keys are first words of Unicode names of letters."""
SURE = frozenset(
    "the and was were has have had with my his their they she he this that is are of from by for "
    "i it its your our who what where when which because but lives lived works worked moved likes "
    "bought met married opened born got went said says".split()
)
"""English words that few other languages have; one suffices if no other language's word occurs."""
FUNCTION_WORDS = {
    "Polish": "i w z na do nie się jest to mam ma że od po przez oraz był była mój moja nas",
    "German": "der die das und ist nicht ich wir er sie ein eine einen mit von zu auf seit im "
    "dem den meine mein wurde hat",
    "French": "le la les et est une des du je nous vous il elle dans avec pas sur au aux mon ma à "
    "son sa été ses encore",
    "Spanish": "el la los las y es una del con por para mi su en no me desde está se",
    "Italian": "il lo la gli è e una di del della con per mi mio mia non nel al ho sono stato",
    "Portuguese": "o os as e é uma do da com para minha meu não em foi eu um no na",
    "Dutch": "de het een en is niet van ik wij hij zij met voor mijn heeft bij naar",
    "Swedish": "och är inte jag vi han hon en ett på med för min har till om att som det",
    "Danish": "og er ikke jeg vi han hun en et på med for min har til at som det blev",
    "Norwegian": "og er ikke jeg vi han hun en et på med for min har til å som det ble",
    "Finnish": "ja on ei en hän minä me se että mutta kun oli ovat",
    "Czech": "a je v na se že není jsem má můj moje ale jako byl byla",
    "Hungarian": "a az és nem hogy egy van volt én meg ez de is",
    "Romanian": "și în este nu la cu pe un o din a fost îmi mea meu sunt",
    "Turkish": "ve bir bu da de için ile var yok çok ben o mi",
    "Indonesian": "dan di yang tidak saya ini itu dengan untuk hari ke sampai ada adalah",
    "Vietnamese": "và là của không có tôi ở tại cho",
}
"""The most frequent words of other languages in Latin script."""
LETTERS = {
    "Polish": "ąćęłńśźż", "German": "ßäöü", "French": "çèêëîïœùû", "Spanish": "ñ",
    "Portuguese": "ãõ", "Swedish": "åäö", "Danish": "åæø", "Norwegian": "åæø", "Finnish": "äö",
    "Czech": "ěřůčžý", "Hungarian": "őűáéí", "Romanian": "ăâîșț", "Turkish": "ğışçü",
    "Vietnamese": "ơưđạảấầậếềểệịọốồộớờợụủứừự",
}  # fmt: skip
_WORDS_OF = {language: frozenset(words.split()) for language, words in FUNCTION_WORDS.items()}
_SHARED = frozenset("a an as at do in me no on so".split())
_TELLING = frozenset().union(*_WORDS_OF.values()) - SURE - _SHARED
_WORD = re.compile(r"[^\W\d_]+")
# addresses, paths, code, numbers; anchored at the begin of words, else the search is quadratic
_NO_WORDS = re.compile(r"(?<!\S)\S*[/@\\_=<>{}]\S*|(?<!\w)\w*\d\w*")
_UNSURE = "unsure"


def other_languages(sentences: Sequence[str]) -> list[str | None]:
    """Return for each sentence of a text the language that it surely has, or None for English.

    A sentence without a known word of any language counts as English if another sentence of the
    text is English.
    """
    languages = [_language(sentence) for sentence in sentences]
    doubtful = None if "English" in languages else UNNAMED
    return [None if one == "English" else doubtful if one == _UNSURE else one for one in languages]


def _language(sentence: str) -> str | None:
    """Return a sentence's language, ``_UNSURE`` if no word is known, or None if undecided."""
    text = normal_form("NFC", _NO_WORDS.sub(" ", sentence))
    if (script := _script(text)) is not None:
        return script
    words = _WORD.findall(text)
    lower = [word for word in words if word.islower() and len(word) > 1]
    if not lower:
        return None
    folded = {*lower, words[0].lower()}
    if text.isascii() and folded & SURE and not folded & _TELLING:
        return "English"  # without the dictionary, which takes a second to load
    share = sum(map(_is_english, lower)) / len(lower)
    if share > 0.5:
        return "English"
    if told := _told(words):
        return told
    return _UNSURE if not share and len(lower) > 1 else None


def _script(text: str) -> str | None:
    """Return the language or script of a text with mostly non-Latin letters; else None."""
    if text.isascii():
        return None
    scripts = Counter(unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha())
    foreign = Counter({script: n for script, n in scripts.items() if script != "LATIN"})
    if not 2 * foreign.total() > scripts.total():
        return None
    if foreign["HIRAGANA"] + foreign["KATAKANA"]:
        return "Japanese"
    [(script, _)] = foreign.most_common(1)
    return SCRIPTS.get(script, f"{script.capitalize()} script")


def _told(words: Sequence[str]) -> str | None:
    """Return the language with most matches of function words and letters; None without any."""
    lower = {word for word in words if word.islower()}
    lower |= {word.lower() for word in words[:1]}
    letters = {letter for word in words[1:] if word.islower() for letter in word}
    scores = {
        language: 2 * len(lower & function_words) + len(letters & set(LETTERS.get(language, "")))
        for language, function_words in _WORDS_OF.items()
    }
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] else None


@lru_cache(maxsize=100_000)
def _is_english(word: str) -> bool:
    with extra("memory", "the rules need"):
        from simplemma import is_known
    return bool(is_known(word, lang="en"))
