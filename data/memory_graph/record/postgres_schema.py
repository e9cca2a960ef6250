"""Tables of memory graphs in PostgreSQL, and tenants with their roles.

All tenants share the tables of one schema. Every row has the number of its tenant, with which every
key begins. Row-level security shows a tenant's role only the rows of this tenant, and shows the
owner of the tables no rows. A tenant's number is part of the name of its role, so the policy
depends on no table and on no setting that a session could change. Roles belong to the whole server,
so their names contain a random number of the schema. The role of a program is a member of a role
that may take each tenant's role.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

SCHEMA = "turngraph"
LOCK = 0x54474D47
"""Advisory lock that a command holds while it changes the schema or the tenants."""
TENANT = f"tenant integer NOT NULL DEFAULT {SCHEMA}.tenant()"
WITH_IDS = ("nodes", "edges", "aliases", "journal", "chunks", "questions", "themes")
COUNTERS = (*WITH_IDS, *(f"{t} {what}" for t in ("fact_words", "name_words")
                         for what in ("rows", "words")))  # fmt: skip
"""Names of each tenant's counters: last ids, and sizes of the word indexes."""


def _id(table: str) -> str:
    return f"id bigint NOT NULL DEFAULT {SCHEMA}.next_id('{table}')"


TABLES: Mapping[str, str] = {
    "meta": "name text NOT NULL, value text NOT NULL, {tenant}, PRIMARY KEY (tenant, name)",
    "counters": "name text NOT NULL, value bigint NOT NULL, {tenant}, PRIMARY KEY (tenant, name)",
    "stamps": "revision bigint NOT NULL, stamp bigint NOT NULL, {tenant},"
    " PRIMARY KEY (tenant, revision)",
    "nodes": f'{_id("nodes")}, type smallint NOT NULL, hash bigint, said text COLLATE "C",'
    ' valid_from text COLLATE "C", valid_to text COLLATE "C", hypothesis smallint NOT NULL'
    ' DEFAULT 0, revision bigint NOT NULL, text text COLLATE "C" NOT NULL, {tenant},'
    " PRIMARY KEY (tenant, id)",
    "episodes": 'node bigint NOT NULL, source text COLLATE "C", origin text COLLATE "C",'
    " speaker text COLLATE \"C\", extractor text NOT NULL, properties json NOT NULL DEFAULT '{{}}',"
    " {tenant}, PRIMARY KEY (tenant, node), UNIQUE (tenant, origin)",
    "edges": f"{_id('edges')}, type smallint NOT NULL, source bigint NOT NULL, target bigint NOT"
    ' NULL, relation text COLLATE "C", said text COLLATE "C", valid_from text COLLATE "C",'
    ' valid_to text COLLATE "C", hypothesis smallint NOT NULL DEFAULT 0, revision bigint NOT NULL,'
    " {tenant}, PRIMARY KEY (tenant, id)",
    "aliases": f'{_id("aliases")}, alias text COLLATE "C" NOT NULL, spelling text COLLATE "C"'
    " NOT NULL, node bigint NOT NULL, given smallint NOT NULL DEFAULT 0, {tenant},"
    " PRIMARY KEY (tenant, id), UNIQUE (tenant, alias, spelling, node)",
    "sightings": "alias bigint NOT NULL, episode bigint NOT NULL, {tenant},"
    " PRIMARY KEY (tenant, alias, episode)",
    "provenance": "fact bigint NOT NULL, episode bigint NOT NULL, start bigint NOT NULL,"
    " stop bigint NOT NULL, {tenant}, PRIMARY KEY (tenant, fact, episode, start, stop)",
    "supersessions": 'old bigint NOT NULL, new bigint NOT NULL, boundary text COLLATE "C",'
    ' old_valid_to text COLLATE "C", new_valid_from text COLLATE "C", {tenant},'
    " PRIMARY KEY (tenant, old, new)",
    "removed": "kind smallint NOT NULL, id bigint NOT NULL, revision bigint NOT NULL, {tenant}",
    "journal": f"{_id('journal')}, operation text NOT NULL, undo text NOT NULL, {{tenant}},"
    " PRIMARY KEY (tenant, id)",
    "changes": "place bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL, before json,"
    " after json, {tenant}, PRIMARY KEY (tenant, place)",
    "fact_words": 'word text COLLATE "C" NOT NULL, type smallint NOT NULL, fact bigint NOT NULL,'
    " count integer NOT NULL, length integer NOT NULL, {tenant},"
    " PRIMARY KEY (tenant, word, fact) INCLUDE (type, count, length)",
    "name_words": 'word text COLLATE "C" NOT NULL, alias bigint NOT NULL, count integer NOT NULL,'
    " length integer NOT NULL, {tenant}, PRIMARY KEY (tenant, word, alias) INCLUDE (count, length)",
    "chunks": f"{_id('chunks')}, episode bigint NOT NULL, start bigint NOT NULL, stop bigint NOT"
    " NULL, revision bigint NOT NULL, {tenant}, PRIMARY KEY (tenant, id),"
    " UNIQUE (tenant, episode, start, stop)",
    "questions": f"{_id('questions')}, chunk bigint NOT NULL, revision bigint NOT NULL, maker text"
    ' NOT NULL, kept smallint NOT NULL, text text COLLATE "C" NOT NULL, {tenant},'
    " PRIMARY KEY (tenant, id)",
    "themes": f"{_id('themes')}, level smallint NOT NULL, eigenvalue double precision NOT NULL,"
    ' revision bigint NOT NULL, source text COLLATE "C", maker text, summary text, {tenant},'
    " PRIMARY KEY (tenant, id)",
    "theme_members": "theme bigint NOT NULL, member bigint NOT NULL, weight double precision NOT"
    " NULL, {tenant}, PRIMARY KEY (tenant, theme, member)",
    "theme_quotes": "theme bigint NOT NULL, position integer NOT NULL, fact bigint NOT NULL,"
    " episode bigint NOT NULL, start bigint NOT NULL, stop bigint NOT NULL, {tenant},"
    " PRIMARY KEY (tenant, theme, position)",
    "themed": 'source text COLLATE "C", revision bigint NOT NULL, maker text NOT NULL, {tenant}',
    "conversations": "id text NOT NULL, began text NOT NULL, changed text NOT NULL, memory_began"
    " text, memory_key text, num_remembered integer NOT NULL DEFAULT 0, {tenant},"
    " PRIMARY KEY (tenant, id)",
    "turns": "conversation text NOT NULL, turn integer NOT NULL, record json NOT NULL,"
    " passages json NOT NULL, {tenant}, PRIMARY KEY (tenant, conversation, turn),"
    " FOREIGN KEY (tenant, conversation) REFERENCES {s}.conversations (tenant, id)"
    " ON DELETE CASCADE",
}
"""Columns of each table, in the order of SQLite's (``schema.TABLES``), with the tenant last.
``fact_words`` and ``name_words`` have a row for each distinct word of a fact or a name: ``count``
is how often the text contains it, ``length`` is the text's number of words. ``changes`` is filled
while an edit runs."""
INDEXES = (
    "CREATE INDEX nodes_by_hash ON {s}.nodes (tenant, hash) WHERE hash IS NOT NULL",
    "CREATE INDEX nodes_by_revision ON {s}.nodes (tenant, revision)",
    "CREATE INDEX episodes_by_source ON {s}.episodes (tenant, source, node)",
    "CREATE INDEX edges_by_source ON {s}.edges (tenant, source, type, id)",
    "CREATE INDEX edges_by_target ON {s}.edges (tenant, target, type, id)",
    "CREATE INDEX simple_edges ON {s}.edges (tenant, source, relation, valid_to, target)"
    " WHERE type = 0",
    "CREATE INDEX edges_by_revision ON {s}.edges (tenant, revision)",
    "CREATE INDEX aliases_by_node ON {s}.aliases (tenant, node)",
    "CREATE INDEX sightings_by_episode ON {s}.sightings (tenant, episode)",
    "CREATE INDEX provenance_by_episode ON {s}.provenance (tenant, episode)",
    "CREATE INDEX supersessions_by_new ON {s}.supersessions (tenant, new)",
    "CREATE INDEX removed_by_revision ON {s}.removed (tenant, revision)",
    "CREATE INDEX chunks_by_revision ON {s}.chunks (tenant, revision)",
    "CREATE INDEX questions_by_chunk ON {s}.questions (tenant, chunk)",
    "CREATE INDEX questions_by_revision ON {s}.questions (tenant, revision)",
    "CREATE INDEX themes_by_source ON {s}.themes (tenant, source)",
    "CREATE INDEX theme_members_by_member ON {s}.theme_members (tenant, member)",
    "CREATE INDEX theme_quotes_by_episode ON {s}.theme_quotes (tenant, episode)",
    "CREATE INDEX themed_by_source ON {s}.themed (tenant, source)",
)
RECORDED = ("nodes", "edges", "aliases", "sightings", "provenance", "supersessions")
"""Tables that an edit may change."""
FUNCTIONS = (
    # the tenant is read from the role: a session could change a setting
    "CREATE FUNCTION {s}.tenant() RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE RETURN"
    " CASE WHEN starts_with(CURRENT_USER::text, '{group}_')"
    " THEN substr(CURRENT_USER::text, {skip})::integer END",
    "CREATE FUNCTION {s}.json_extract(value json, path text) RETURNS text LANGUAGE sql IMMUTABLE"
    " PARALLEL SAFE RETURN value ->> substr(path, 3)",
    "CREATE FUNCTION {s}.json_of_texts(texts text[]) RETURNS text LANGUAGE sql IMMUTABLE"
    " PARALLEL SAFE RETURN array_to_json(texts)::text",
    "CREATE AGGREGATE {s}.json_group_array(text) (sfunc = array_append, stype = text[],"
    " initcond = '{{}}', finalfunc = {s}.json_of_texts)",
)
TRIGGERS = (
    "CREATE FUNCTION {s}.record_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO {s}.changes (name, before, after) VALUES (TG_TABLE_NAME,"
    " CASE WHEN TG_OP <> 'INSERT' THEN to_json(OLD) END,"
    " CASE WHEN TG_OP <> 'DELETE' THEN to_json(NEW) END); RETURN NULL; END $$",
    *(
        f"CREATE TRIGGER record_{table} AFTER INSERT OR UPDATE OR DELETE ON {{s}}.{table}"
        " FOR EACH ROW WHEN (current_setting('turngraph.recording', true) = 'on')"
        " EXECUTE FUNCTION {s}.record_change()"
        for table in RECORDED
    ),
)
NEXT_ID = (
    "CREATE FUNCTION {s}.next_id(kind text) RETURNS bigint LANGUAGE sql VOLATILE AS"
    " 'UPDATE {s}.counters SET value = value + 1 WHERE name = $1 RETURNING value'"
)
MAKE_TENANT = (
    "CREATE FUNCTION {s}.make_tenant(called text) RETURNS integer LANGUAGE plpgsql"
    " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ DECLARE found integer; BEGIN"
    " PERFORM pg_advisory_xact_lock({lock});"
    " SELECT id INTO found FROM {s}.tenants WHERE name = called;"
    " IF found IS NULL THEN"
    " INSERT INTO {s}.tenants (name) VALUES (called) RETURNING id INTO found;"
    " EXECUTE format('CREATE ROLE {group}_%s NOLOGIN IN ROLE {group}', found);"
    " EXECUTE format('GRANT {group}_%s TO CURRENT_USER WITH INHERIT FALSE, SET TRUE', found);"
    " EXECUTE format('GRANT {group}_%s TO {app} WITH INHERIT FALSE, SET TRUE', found);"
    " END IF; RETURN found; END $$"
)
"""Function by which a program's role makes tenants without the right to create roles."""
KEYS = (
    ("nodes", "id"), ("edges", "id"), ("aliases", "id"), ("episodes", "node"),
    ("provenance", "fact"), ("chunks", "id"), ("questions", "id"), ("themes", "id"),
)  # fmt: skip
"""Columns whose values repeat over the tenants, but hardly within one. Without ``n_distinct``, the
planner expects dozens of rows for a value, and reads whole tables for a join."""
STATEMENTS = (
    "CREATE SCHEMA {s}",
    "CREATE TABLE {s}.versions (version integer NOT NULL, role text NOT NULL)",
    "INSERT INTO {s}.versions VALUES ({version}, '{group}')",
    "CREATE ROLE {group} NOLOGIN",
    "CREATE ROLE {app} NOLOGIN",
    "GRANT USAGE ON SCHEMA {s} TO {group}, {app}",
    *FUNCTIONS,
    "SET LOCAL check_function_bodies = off",
    NEXT_ID,
    "CREATE TABLE {s}.tenants (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " name text NOT NULL UNIQUE)",
    "ALTER TABLE {s}.tenants ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON {s}.tenants FOR SELECT TO {group} USING (id = {s}.tenant())",
    "CREATE POLICY known ON {s}.tenants FOR SELECT TO {app} USING (true)",
    "GRANT SELECT ON {s}.versions, {s}.tenants TO {group}, {app}",
    *(
        statement
        for table, columns in TABLES.items()
        for statement in (
            f"CREATE TABLE {{s}}.{table} ({columns.replace('{tenant}', TENANT)})",
            f"ALTER TABLE {{s}}.{table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {{s}}.{table} FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY own ON {{s}}.{table} TO {{group}} USING (tenant = {{s}}.tenant())"
            " WITH CHECK (tenant = {s}.tenant())",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{s}}.{table} TO {{group}}",
        )
    ),
    *INDEXES,
    *TRIGGERS,
    *(f"ALTER TABLE {{s}}.{t} ALTER {key} SET (n_distinct = -1)" for t, key in KEYS),
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {s} TO {group}",
    MAKE_TENANT,
    "REVOKE ALL ON FUNCTION {s}.make_tenant(text) FROM PUBLIC",
    "GRANT EXECUTE ON FUNCTION {s}.make_tenant(text) TO {app}",
)
"""Statements that create the schema: the table ``versions``, the roles of tenants and programs, the
table ``tenants``, and the tables with row-level security."""
VERSION = 1


def _value(db: Connection, sql: str, *values: object) -> Any:
    """Return the first column of a query's only row; None without a row."""
    row = db.execute(sql, values or None).fetchone()
    return None if row is None else row[0]


def found_version(db: Connection) -> int:
    """Return the version of the schema; 0: the database has none."""
    if _value(db, "SELECT to_regclass($1) IS NULL", f"{SCHEMA}.versions"):
        return 0
    return int(_value(db, f"SELECT max(version) FROM {SCHEMA}.versions"))


def group_role(db: Connection) -> str:
    """Return the role of which all tenants' roles are members; their names begin with its name."""
    return str(_value(db, f"SELECT role FROM {SCHEMA}.versions"))


def program_role(group: str) -> str:
    """Return the group role of programs, given that of tenants (``group_role``)."""
    return group.replace("_", "_app_")


def grant(db: Connection, role: str) -> str:
    """Let a role use the schema: find and make tenants, read and write the rows of each.

    Args:
        db: connection of the schema's owner.
        role: existing role of a program.

    Returns:
        The GRANT statement.
    """
    quoted = role.replace('"', '""')
    statement = f'GRANT {program_role(group_role(db))} TO "{quoted}"'
    db.execute(f"{statement} WITH INHERIT TRUE, SET TRUE")
    return statement


def make(db: Connection) -> None:
    """Make the schema, unless it exists.

    Args:
        db: connection of a role that may create schemas and roles, outside of a transaction.
    """
    if found_version(db):  # a role without the right to change it may look
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock($1)", (LOCK,))
        if found_version(db):
            return
        group = f"turngraph_{secrets.token_hex(4)}"
        for statement in STATEMENTS:
            sql = statement.format(
                s=SCHEMA, group=group, app=program_role(group), lock=LOCK,
                skip=len(group) + 2, version=VERSION,
            )  # fmt: skip
            db.execute(sql)


def drop(db: Connection) -> None:
    """Delete the schema with all memories, its tenants' roles and the role of programs."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock($1)", (LOCK,))
        if not found_version(db):
            return
        group = group_role(db)
        roles = [f"{group}_{id_}" for (id_,) in db.execute(f"SELECT id FROM {SCHEMA}.tenants")]
        db.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        for role in (*roles, program_role(group), group):
            db.execute(f"DROP ROLE {role}")


def find_tenant(db: Connection, name: str) -> str | None:
    """Return the role of a tenant; None: no tenant has this name."""
    tenant_id = _value(db, f"SELECT id FROM {SCHEMA}.tenants WHERE name = $1", name)
    return None if tenant_id is None else f"{group_role(db)}_{tenant_id}"


def find_current(db: Connection, name: str) -> str | None:
    """Return the role of a tenant; None if there is none, or the schema has another version."""
    sql = f"""SELECT g.role || '_' || t.id FROM {SCHEMA}.versions g, {SCHEMA}.tenants t
        WHERE t.name = $1 AND g.version = $2"""
    role: str | None = _value(db, sql, name, VERSION)
    return role


def make_tenant(db: Connection, name: str) -> str:
    """Make a tenant, unless it exists, and return its role.

    Args:
        db: connection, outside of a transaction, of a role with this right (``grant``), or of the
            schema's owner if it may create roles.
        name: name of the tenant.
    """
    with db.transaction():
        tenant = _value(db, f"SELECT {SCHEMA}.make_tenant($1)", name)
        role = f"{group_role(db)}_{tenant}"
        with _acting_as(db, role):
            sql = f"""INSERT INTO {SCHEMA}.meta (name, value) VALUES ('revision', '0')
                ON CONFLICT DO NOTHING"""
            db.execute(sql)
            sql = f"""INSERT INTO {SCHEMA}.counters (name, value)
                SELECT name, 0 FROM unnest($1::text[]) AS k(name) ON CONFLICT DO NOTHING"""
            db.execute(sql, (list(COUNTERS),))
        return role


def drop_tenant(db: Connection, name: str) -> bool:
    """Delete a tenant with all its rows and its role; return whether it existed."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock($1)", (LOCK,))
        role = find_tenant(db, name)
        if role is None:
            return False
        tenant = int(role.rpartition("_")[2])
        db.execute(f"DELETE FROM {SCHEMA}.tenants WHERE id = $1", (tenant,))
        with _acting_as(db, role):
            # waits for writers; a later writer finds neither revision nor role
            db.execute(f"SELECT 1 FROM {SCHEMA}.meta WHERE name = 'revision' FOR UPDATE")
            for table in TABLES:
                if table == "conversations":  # written without a lock of the revision
                    db.execute(f"LOCK TABLE {SCHEMA}.{table} IN EXCLUSIVE MODE")
                db.execute(f"DELETE FROM {SCHEMA}.{table} WHERE tenant = $1", (tenant,))
        db.execute(f"DROP ROLE {role}")
        return True


@contextmanager
def _acting_as(db: Connection, role: str) -> Iterator[None]:
    """Act as a tenant's role, which alone sees the tenant's rows, within a transaction."""
    db.execute(f"SET LOCAL ROLE {role}")
    yield
    db.execute("RESET ROLE")


def tenants(db: Connection) -> list[str]:
    """Return the names of all tenants."""
    return [name for (name,) in db.execute(f"SELECT name FROM {SCHEMA}.tenants ORDER BY id")]
