"""Makes automata that find many names in a text at once (Aho and Corasick 1975)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ahocorasick import Automaton as Automaton

MAX_NAME_CHARS = 1000
"""Length of the longest name that is looked for, in characters, after folding. pyahocorasick calls
itself once for each character of a name: a long one fills the stack, which ends the process."""
MOST_NESTED = 64
"""Most names that are found where they end at the same character, the longest first. Without a
limit the time would grow with the number of nested names times the text's length."""


def name_automaton(names: Mapping[str, object]) -> Automaton | None:
    """Make an automaton that finds names; None if there is nothing to find.

    A longer name than ``MAX_NAME_CHARS`` is a text, which no other text repeats: it is left out.

    Args:
        names: name -> value that ``find_names`` yields; fold the names if the texts are folded.
    """
    automaton = Automaton()
    for name, value in names.items():
        if 0 < len(name) <= MAX_NAME_CHARS:
            automaton.add_word(name, value)
    if not len(automaton):
        return None
    automaton.make_automaton()
    return automaton


def find_names(automaton: Automaton, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the index of each name's last character in a text, and the name's value."""
    num_same, previous = 0, -1
    for last, value in automaton.iter(text):
        num_same = num_same + 1 if last == previous else 1
        previous = last
        if num_same <= MOST_NESTED:
            yield last, value
