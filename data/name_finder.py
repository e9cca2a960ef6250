"""Makes automata that find many names in a text at once (Aho and Corasick 1975)."""

from __future__ import annotations

from collections.abc import Mapping

from ahocorasick import Automaton

MAX_NAME_CHARS = 1000
"""Length of the longest name that is looked for, in characters, after folding. pyahocorasick calls
itself once for each character of a name: a long one fills the stack, which ends the process."""


def name_automaton(names: Mapping[str, object]) -> Automaton | None:
    """Make an automaton that finds names; None if there is nothing to find.

    A longer name than ``MAX_NAME_CHARS`` is a text, which no other text repeats: it is left out.

    Args:
        names: what is found with each name; a name is as the texts are, folded or not.
    """
    automaton = Automaton()
    for name, value in names.items():
        if 0 < len(name) <= MAX_NAME_CHARS:
            automaton.add_word(name, value)
    if not len(automaton):
        return None
    automaton.make_automaton()
    return automaton
