"""Resolves "I": words of the first person, and the speaker of a graph."""

from __future__ import annotations

from turngraph.data.memory_graph.record.database import Database
from turngraph.data.normalise import words

USER, ASSISTANT = "user", "assistant"
"""Speakers of a chat. The rules read "I" and "my" of the user as the object ``user``."""
FIRST_PERSON = frozenset("i me my mine myself".split())
"""Words by which a speaker means themselves alone."""
WITH_OTHERS = frozenset("we us our ours ourselves".split())
"""Words by which a speaker means themselves and others."""
_USER = "SELECT 1 FROM aliases WHERE alias = ? LIMIT 1"
_SPEAKERS = """SELECT DISTINCT speaker FROM episodes
    WHERE speaker IS NOT NULL AND speaker <> ? LIMIT 2"""


def of_oneself(text: str) -> bool:
    """Return whether a text has a word by which its speaker means themselves."""
    return not (FIRST_PERSON | WITH_OTHERS).isdisjoint(words(text))


def speaker_of(db: Database) -> str | None:
    """Return the name for "I" in a question: a chat's user, else the only speaker of all episodes.

    None is returned if no episode has a speaker, or if there are several speakers.
    """
    if db.execute(_USER, (USER,)).fetchone():
        return USER
    speakers = [name for (name,) in db.execute(_SPEAKERS, (ASSISTANT,))]
    return speakers[0] if len(speakers) == 1 else None
