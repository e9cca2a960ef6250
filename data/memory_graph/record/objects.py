"""Finds objects by name and time nodes by text while episodes are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from turngraph.data.memory_graph.memory_types import OBJECT, TIME
from turngraph.data.memory_graph.names import alias, text_hash
from turngraph.data.memory_graph.record.new_rows import NewRows
from turngraph.data.normalise import words

RECENT_SIGHTINGS = 1000
_SPELLINGS = """
SELECT a.node, a.id, a.alias, a.spelling, n.text FROM aliases a JOIN nodes n ON n.id = a.node
WHERE a.alias IN ({})"""
NAMES_PER_QUERY = 500
MAX_LONGER = 50
"""Maximum number of names that are compared with a name that may be their short form."""
_SEEN_IN = """
SELECT DISTINCT a.node, a.alias FROM json_each(?2) k JOIN aliases a ON a.node = k.value
JOIN sightings s ON s.alias = a.id JOIN episodes e ON e.node = s.episode AND e.source IS ?1"""
_LAST_SEEN = """
SELECT r.episode FROM (SELECT episode FROM sightings WHERE alias = ? ORDER BY episode DESC LIMIT ?)
AS r JOIN episodes e ON e.node = r.episode AND e.source IS ? ORDER BY r.episode DESC LIMIT 1"""


class Objects:
    """Finds the object of a name and the node of a time, and adds those that are missing.

    If several objects have a name (after a ``split``, or because each text means its own thing),
    the name means the object that an episode of the same source mentioned last under this name,
    among the last 1,000 episodes with each spelling; otherwise the oldest object.

    Args:
        rows: new rows of the transaction.
    """

    def __init__(self, rows: NewRows) -> None:
        self.rows = rows
        self._found: dict[tuple[str, str | None], tuple[int, int]] = {}
        self._local: dict[tuple[str, int], tuple[int, int]] = {}
        self._spellings: dict[str, dict[tuple[int, str], int]] = {}
        self._texts: dict[int, str] = {}
        self._times: dict[str, int] = {}
        self.num_new = 0

    def look_up(self, names: Iterable[str]) -> None:
        """Read the objects of many names at once, for ``find``."""
        forms = {alias(name) for name in names}
        self._read_spellings(sorted(forms - self._spellings.keys()))

    def find(self, name: str, source: str | None, is_short: bool = False) -> tuple[int, int]:
        """Return a name's object, added if missing, and the alias id of this spelling.

        Args:
            name: name, as the text spells it.
            source: source of the text.
            is_short: whether the name may be the short form of a longer name in the source ("the
                Yaris").
        """
        key = name, source
        if key not in self._found:
            form = alias(name)
            spellings = self._known_spellings(form)
            node = self._choose(spellings, source) if spellings else None
            if node is None and is_short:
                node = self._longer(form, source)
            node = self._new(name) if node is None else node
            if (node, name) not in spellings:
                spellings[node, name] = self.rows.alias(form, name, node)
            self._found[key] = node, spellings[node, name]
        return self._found[key]

    def find_local(self, name: str, episode: int) -> tuple[int, int]:
        """Return the object of an episode's own that it means by a name, and the alias id.

        Args:
            name: description of a thing without a name ("bridge").
            episode: node id of the episode.
        """
        key = alias(name), episode
        if key not in self._local:
            spellings = self._known_spellings(key[0])
            node = self._new(name)
            spellings[node, name] = self.rows.alias(key[0], name, node)
            self._local[key] = node, spellings[node, name]
        return self._local[key]

    def _known_spellings(self, form: str) -> dict[tuple[int, str], int]:
        """Return alias ids by node and spelling for a normalised name, oldest node first."""
        if form not in self._spellings:
            self._read_spellings([form])
        return self._spellings[form]

    def _read_spellings(self, forms: Sequence[str]) -> None:
        self._spellings |= {form: {} for form in forms}
        for first in range(0, len(forms), NAMES_PER_QUERY):
            batch = forms[first : first + NAMES_PER_QUERY]
            sql = _SPELLINGS.format(", ".join("?" * len(batch)))
            for node, alias_id, form, spelling, text in sorted(self.rows.db.execute(sql, batch)):
                self._spellings[form][node, spelling] = alias_id
                self._texts[node] = text

    def _choose(self, spellings: dict[tuple[int, str], int], source: str | None) -> int:
        last = dict.fromkeys((node for node, _ in spellings), 0)
        if len(last) == 1:
            return next(iter(last))
        self.rows.flush()
        for (node, _), alias_id in spellings.items():
            values = alias_id, RECENT_SIGHTINGS, source
            seen = self.rows.db.execute(_LAST_SEEN, values).fetchone()
            last[node] = max(last[node], seen[0] if seen else 0)
        return max(last, key=lambda node: last[node])  # the first of equal ones

    def _longer(self, form: str, source: str | None) -> int | None:
        """Return the only object of a source whose name begins or ends with a name, or None."""
        self.rows.flush()
        near = self.rows.db.words.best_names(words(form), MAX_LONGER)
        rows = self.rows.db.execute(_SEEN_IN, (source, json.dumps(near)))
        nodes = {
            node
            for node, longer in rows
            if longer.endswith(f" {form}") or longer.startswith(f"{form} ")
        }
        return nodes.pop() if len(nodes) == 1 else None

    def _new(self, name: str) -> int:
        node = self.rows.node(OBJECT, name)
        self.num_new += 1
        self._texts[node] = name
        return node

    def name(self, node: int) -> str:
        """Return the name of an object."""
        if node not in self._texts:
            sql = "SELECT text FROM nodes WHERE id = ?"
            self._texts[node] = self.rows.db.execute(sql, (node,)).fetchone()[0]
        return self._texts[node]

    def time(self, iso: str) -> int:
        """Return the node of a time, added if missing."""
        if iso not in self._times:
            sql = f"SELECT id FROM nodes WHERE hash = ? AND type = {TIME} AND text = ?"
            row = self.rows.db.execute(sql, (text_hash(TIME, iso), iso)).fetchone()
            self._times[iso] = self.rows.node(TIME, iso) if row is None else row[0]
        return self._times[iso]
