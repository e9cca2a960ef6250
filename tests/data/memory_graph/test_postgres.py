"""Memory graphs in PostgreSQL: the same answers as SQLite's, tenants apart, the schema, errors."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from string import ascii_letters
from typing import TYPE_CHECKING

import pytest

from turngraph import memory
from turngraph.data.memory_graph.graph import MemoryGraph
from turngraph.data.memory_graph.memory_types import Episode
from turngraph.data.memory_graph.recall.recall import RecallSettings
from turngraph.data.memory_graph.recall.traverse_settings import TRAVERSALS, Traversal
from turngraph.data.memory_graph.recall.word_vectors import word_vectors
from turngraph.data.memory_graph.record.open_store import open_store
from turngraph.data.memory_graph.record.place import of_tenant, shown
from turngraph.data.memory_graph.record.store import Store
from turngraph.data.memory_graph.upkeep.transfer import export_jsonl, import_jsonl
from turngraph.tests.postgres_server import Server
from turngraph.tests.waiting import wait_until

if TYPE_CHECKING:
    from psycopg import Connection

TEXTS = (
    ("Anna Schmidt lives in Bergen. She works for Equinor.", "2021", "a"),
    ("Anna Schmidt moved to Oslo. Oslo is a city in Norway.", "2023-05", "a"),
    ("Anna Schmidt lives in Oslo with the cat Mia.", "2023-06", "b"),
    ("Bo Berg works for Equinor. Bo Berg lives in Bergen.", "2022-01", "b"),
    ("Equinor is a company in Stavanger.", None, "c"),
)
QUESTIONS = ("Where does Anna Schmidt live?", "Who works for Equinor?", "What is in Norway?")
MODES = ("BeamSearch + WaterCircles", "A*", "flat", "ppr", "eigen")


def filled(place: str | Path, tenant: str | None = None) -> MemoryGraph:
    """Return a graph that remembers ``TEXTS``."""
    graph = MemoryGraph.open(place, word_vectors, tenant=tenant)
    episodes = [
        Episode(text, time=time, source=source, origin=str(number), speaker="Bo")
        for number, (text, time, source) in enumerate(TEXTS)
    ]
    graph.remember_many(episodes, batch=2)
    return graph


@pytest.fixture
def both(postgres: Server, tmp_path: Path) -> Iterator[tuple[MemoryGraph, MemoryGraph]]:
    """The same graph in SQLite and in PostgreSQL."""
    with filled(tmp_path / "a.db") as lite, filled(postgres.url, str(tmp_path)) as graph:
        yield lite, graph


def lines(graph: MemoryGraph, tmp_path: Path) -> str:
    """Return the export of a graph."""
    path = tmp_path / "export.jsonl"
    export_jsonl(graph.store, path)
    return path.read_text()


def test_both_databases_remember_and_answer_the_same(
    both: tuple[MemoryGraph, MemoryGraph], tmp_path: Path
) -> None:
    lite, graph = both
    assert lines(graph, tmp_path) == lines(lite, tmp_path)
    for question in QUESTIONS[::2]:
        for mode in MODES:
            settings = RecallSettings(Traversal(mode))  # type: ignore[arg-type]
            found = graph.ask(question, settings=settings).facts
            assert found == lite.ask(question, settings=settings).facts, mode
        assert graph.ask(question, as_of="2022").facts == lite.ask(question, as_of="2022").facts
        assert graph.ask_episodes(question).facts == lite.ask_episodes(question).facts
        assert graph.ask_planned(question).facts == lite.ask_planned(question).facts
    now, then = (graph.ask(QUESTIONS[0], as_of=time).facts for time in (None, "2022"))
    lives = "Anna Schmidt lives in Bergen"
    assert lives not in {fact.text for fact in now}
    assert lives in {fact.text for fact in then}
    assert graph.history("Anna Schmidt") == lite.history("Anna Schmidt")
    assert graph.show("equinor") == lite.show("equinor")
    assert graph.remember(TEXTS[0][0], origin="0").skipped == 1
    assert graph.check() == []


def test_edits_undo_and_forgetting_leave_the_same(
    both: tuple[MemoryGraph, MemoryGraph], tmp_path: Path
) -> None:
    for step in (
        lambda graph: graph.merge("Oslo", "Bergen"),
        lambda graph: graph.undo(),
        lambda graph: graph.rename("Equinor", "Equinor ASA"),
        lambda graph: graph.add_alias("Mia", "the tabby"),
        lambda graph: graph.split("Anna Schmidt", "Anna Schmidt", episodes=[1]),
        lambda graph: graph.undo(),
        lambda graph: graph.make_themes(),
        lambda graph: graph.forget(source="b"),
        lambda graph: graph.forget(entity="Anna Schmidt", wide=True),
    ):
        for graph in both:
            step(graph)
        lite, graph = both
        assert lines(graph, tmp_path) == lines(lite, tmp_path)
        assert graph.check() == []
    found = {fact.text for fact in graph.ask("Where does Bo Berg live?").facts}
    assert not any("Mia" in text for text in found)


def test_every_machine_purges_what_one_forgot(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turngraph.data.memory_graph.recall.adjacency import NAME
    from turngraph.data.memory_graph.recall.derived_files import read_arrays
    from turngraph.data.memory_graph.recall.vector_matrix import VectorMatrix
    from turngraph.data.memory_graph.recall.vectors import NAMES
    from turngraph.data.memory_graph.upkeep import forget

    def opened(machine: str) -> MemoryGraph:
        monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / machine))
        return MemoryGraph.open(postgres.url, word_vectors, tenant="machines")

    def left(graph: MemoryGraph) -> tuple[bool, bool]:
        """Return whether the name's vector, and arrays, are in the files."""
        keys = VectorMatrix(graph.store.derived / NAMES, writable=False).keys
        return mia in keys, read_arrays(graph.store.derived, NAME) is not None

    filled(postgres.url, "machines").close()
    for machine in "ab":
        with opened(machine) as graph:
            graph.ask(QUESTIONS[0])
            mia = graph.show("Mia").node
    with opened("a") as graph, monkeypatch.context() as patch:
        assert left(graph) == (True, True)
        patch.setattr(forget, "finish", lambda _: None)  # killed
        graph.forget(entity="Mia")
    for machine in "bacb":
        with opened(machine) as graph:
            assert left(graph) == (False, False)


def test_a_graph_goes_to_postgresql_and_back(
    both: tuple[MemoryGraph, MemoryGraph], postgres: Server, tmp_path: Path
) -> None:
    lite, _ = both
    lite.make_themes()
    export_jsonl(lite.store, tmp_path / "there.jsonl")
    with open_store(postgres.url, tenant="imported") as there:
        import_jsonl(there, tmp_path / "there.jsonl")
        export_jsonl(there, tmp_path / "back.jsonl")
        with pytest.raises(ValueError, match="imported: not empty"):
            import_jsonl(there, tmp_path / "there.jsonl")
    with MemoryGraph.open(postgres.url, word_vectors, tenant="imported") as graph:
        assert graph.check() == []
        graph.remember("Mia is a cat.")  # ids go on behind the imported ones
        assert graph.check() == []
    with Store(tmp_path / "back.db") as back:
        import_jsonl(back, tmp_path / "back.jsonl")
        export_jsonl(back, tmp_path / "again.jsonl")
    again, there = tmp_path / "again.jsonl", tmp_path / "there.jsonl"
    assert again.read_text() == (tmp_path / "back.jsonl").read_text() == there.read_text()
    doubled = there.read_text().splitlines()
    (tmp_path / "doubled.jsonl").write_text("\n".join([*doubled, doubled[1]]))
    with (
        open_store(postgres.url, tenant="doubled") as store,
        pytest.raises(ValueError, match=f"line {len(doubled) + 1}.*duplicate node"),
    ):
        import_jsonl(store, tmp_path / "doubled.jsonl")


# Tenants


def role_of(admin: Connection, tenant: str) -> str:
    sql = "SELECT v.role || '_' || t.id FROM turngraph.versions v, turngraph.tenants t"
    [role] = admin.execute(f"{sql} WHERE t.name = %s", (tenant,)).fetchone()
    return role


def raw(server: Server, tenant: str) -> Connection:
    """Return a connection of a tenant's own role, which can log in, without our code."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as admin:
        role = role_of(admin, tenant)
        admin.execute(f"ALTER ROLE {role} LOGIN")
    url = server.url.replace("postgres@", f"{role}@")
    return psycopg.connect(url, autocommit=True, options="-c search_path=turngraph")


def test_a_tenants_role_sees_and_writes_its_own_rows_only(postgres: Server) -> None:
    import psycopg

    filled(postgres.url, "mine").close()
    filled(postgres.url, "theirs").close()
    with psycopg.connect(postgres.url) as admin:
        tables = [
            name
            for (name,) in admin.execute(
                "SELECT table_name FROM information_schema.columns"
                " WHERE table_schema = 'turngraph' AND column_name = 'tenant'"
            )
        ]
        [theirs] = admin.execute(
            "SELECT id FROM turngraph.tenants WHERE name = 'theirs'"
        ).fetchone()
        [num] = admin.execute("SELECT count(*) FROM turngraph.nodes").fetchone()
    assert len(tables) == 23
    with raw(postgres, "mine") as mine:
        for table in tables:
            query = f"SELECT count(*) FROM {table} WHERE tenant <> tenant()"
            assert mine.execute(query).fetchone() == (0,), table
            query = f"SELECT count(*) FROM {table} WHERE tenant = {theirs}"
            assert mine.execute(query).fetchone() == (0,), table
        [own] = mine.execute("SELECT count(*) FROM nodes").fetchone()
        assert 0 < own < num
        assert mine.execute("SELECT name FROM tenants").fetchall() == [("mine",)]
        # neither a setting nor another role, nor a row given away, opens a way
        mine.execute("SET turngraph.tenant = '2'; SET search_path = turngraph")
        assert mine.execute("SELECT count(*) FROM nodes").fetchone() == (own,)
        for statement in (
            "INSERT INTO stamps VALUES (99, 1, {theirs})",
            "UPDATE nodes SET tenant = {theirs}",
            "SET ROLE postgres",
            "SET ROLE {other}",
            "SET SESSION AUTHORIZATION {other}",
            "ALTER TABLE nodes DISABLE ROW LEVEL SECURITY",
            "CREATE OR REPLACE FUNCTION tenant() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "INSERT INTO tenants (name) VALUES ('x')",
            "TRUNCATE nodes",
        ):
            [user] = mine.execute("SELECT CURRENT_USER::text").fetchone()
            other = f"{user.rpartition('_')[0]}_{theirs}"
            with pytest.raises(psycopg.Error):
                mine.execute(statement.format(theirs=theirs, other=other))
        assert mine.execute("DELETE FROM nodes WHERE id > 0").rowcount == own
    with MemoryGraph.open(postgres.url, tenant="theirs") as graph:
        assert graph.check() == []


def test_a_tenant_is_deleted_with_all_that_is_its_own(postgres: Server) -> None:
    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering

    filled(postgres.url, "leaves").close()
    with administering(postgres.url) as db:
        role = schema.find_tenant(db, "leaves")
        assert "leaves" in schema.tenants(db)
        assert schema.drop_tenant(db, "leaves")
        assert not schema.drop_tenant(db, "leaves")
        assert "leaves" not in schema.tenants(db)
        assert db.execute("SELECT 1 FROM pg_roles WHERE rolname = $1", (role,)).fetchone() is None
        assert role is not None
        tenant = int(role.rpartition("_")[2])
        for table in schema.TABLES:
            sql = f"SELECT count(*) FROM turngraph.{table} WHERE tenant = {tenant}"
            assert db.execute(sql).fetchone() == (0,), table
    with pytest.raises(ValueError, match=r"tenant=leaves: no such memory graph"):
        open_store(postgres.url, tenant="leaves", read_only=True)


def test_a_tenant_is_deleted_beside_its_writers_and_not_with_what_others_gave_its_role(
    postgres: Server,
) -> None:
    import psycopg

    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering
    from turngraph.inference.serve.shared_conversations import SharedConversations

    url = str(of_tenant(postgres.url, "beside"))
    talk, dropped = SharedConversations(url), []

    def drop() -> None:
        with administering(postgres.url) as db:
            dropped.append(schema.drop_tenant(db, "beside"))

    def wait_for_drop() -> None:
        sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: admin.execute(sql).fetchone() is not None or bool(dropped))

    deletion = threading.Thread(target=drop)
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        role = role_of(admin, "beside")
        admin.execute(f"CREATE TABLE report (); GRANT SELECT ON report TO {role}")
        with pytest.raises(ValueError, match=f"{role}.*DROP OWNED BY"):
            drop()
        admin.execute("DROP TABLE report")
        with talk._open() as talks:
            talks.execute("INSERT INTO conversations (id, began, changed) VALUES ('1', '', '')")
            with open_store(url) as store, store.writing():
                store.db.execute("INSERT INTO meta (name, value) VALUES ('purge', '1')")
                deletion.start()
                wait_for_drop()
            wait_for_drop()
        deletion.join()
        assert dropped == [True]
        for table in schema.TABLES:
            sql = f"SELECT count(*) FROM turngraph.{table} WHERE tenant = %s"
            assert admin.execute(sql, (role.rpartition("_")[2],)).fetchone() == (0,), table
    assert talk.listed(9) == []  # of the tenant that it makes anew


# Schema


def test_the_schema_is_made_once_and_deleted_with_its_roles(postgres: Server) -> None:
    from turngraph.data.memory_graph.record import postgres_schema as schema
    from turngraph.data.memory_graph.record.postgres_store import administering

    url = owned(postgres, "moves")
    with pytest.raises(ValueError, match=r"version 0, this program needs 1; `turngraph memory sch"):
        open_store(url, tenant="a", read_only=True)
    filled(url, "a").close()
    with administering(url) as db:
        own = schema.group_role(db)
        schema.make(db)
        assert schema.group_role(db) == own
        db.execute("UPDATE turngraph.versions SET version = 2")
        with pytest.raises(ValueError, match=r"version 2, this program needs 1$"):
            open_store(url, tenant="a")
        schema.drop(db)
        schema.drop(db)
        assert db.execute("SELECT to_regnamespace('turngraph')").fetchone() == (None,)
        sql = "SELECT rolname FROM pg_roles WHERE rolname LIKE '%' || $1 || '%'"
        assert db.execute(sql, (own.rpartition("_")[2],)).fetchall() == []
    for words, is_there in ((["schema"], True), (["schema", "--drop", "--yes"], False)):
        memory.main([*words, "--url", url])
        with administering(url) as db:
            [found] = db.execute("SELECT to_regnamespace('turngraph')").fetchone()
        assert (found is not None) == is_there


def owned(server: Server, name: str) -> str:
    """Return the URL of a new database for a role that may make schemas and roles, as DBAs do."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name}_owner LOGIN CREATEROLE")
        admin.execute(f"CREATE DATABASE {name}")
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {name}_owner")
    return server.url.replace("postgres@/postgres?", f"{name}_owner@/{name}?")


def test_a_program_needs_no_right_but_to_rows(
    postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import psycopg

    from turngraph.inference.serve.shared_conversations import SharedConversations

    owner = owned(postgres, "usual")
    with psycopg.connect(owner, autocommit=True) as db:
        # as some servers are set up
        db.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        db.execute('CREATE ROLE "the program" LOGIN')
    program = owner.replace("usual_owner@", "the%20program@")
    place = ["--db", program, "--tenant", "ada"]
    text, lines = tmp_path / "a.txt", str(tmp_path / "a.jsonl")
    text.write_text("Anna lives in Oslo. Bo met Cy.\n\nAnna moved to Bergen.")
    refused = "permission denied for {}; the schema's owner"
    fails = (
        (["remember", *place, "--input", str(text)], refused.format("database usual")),
        (["schema", "--url", owner, "--grant", "nobody"], "no such role"),
        (["ask", *place, "--no_embed", "Where?"], refused.format("schema turngraph")),
        (["tenants", "--url", program], refused.format("schema turngraph")),
    )
    for words, message in fails:
        with pytest.raises(ValueError, match=message):
            memory.main(words)
    for words, told in (
        (["schema", "--url", owner, "--grant", "the program"], 'GRANT turngraph_app_.* TO "the'),
        (["schema", "--url", program], "schema of version 1"),
        (["remember", *place, "--input", str(text)], "2 episodes"),
        (["ask", *place, "--no_embed", "Where does Anna live?"], "Bergen"),
        (["ask", *place, "--no_embed", "--over", "episodes", "Where does Anna live?"], "Bergen"),
        (["ask", *place, "--no_embed", "--plan", "rules", "Where does Anna live?"], "Bergen"),
        *(
            (["ask", *place, "--no_embed", "--mixture", name, "Who is Bo?"], "Bo|no answer")
            for name in TRAVERSALS
        ),
        (["ask", *place, "--no_embed", "--compute", "How many people did Bo meet?"], "computed: 1"),
        (["sparql", *place, "ASK { ?s ?p ?o }"], "yes"),
        (["ontology", "coverage", *place], "facts typed"),
        (["themes", *place, "--no_embed"], "passages"),
        (["merge", *place, "Bo", "Cy"], "merged"),
        (["undo", *place], "undone"),
        (["split", *place, "Anna", "--name", "Anne", "--episode", "1"], "new object"),
        (["undo", *place], "undone"),
        (["rename", *place, "Oslo", "Kristiania"], "renamed"),
        (["show", *place, "Anna"], "Bergen"),
        (["history", *place, "Anna"], "Kristiania"),
        (["stats", *place], "schema_version\t1"),
        (["export", *place, "--jsonl", lines], "lines written"),
        (["export", *place, "--trig", str(tmp_path / "a.trig")], "quads written"),
        (["export", *place, "--html", str(tmp_path / "a.html")], "nodes written"),
        (["import", "--db", program, "--tenant", "di", "--rdf", str(tmp_path / "a.trig")], "new"),
        (["remember_all", "--db_dir", program, "--input", str(text)], "2 episodes"),
        (["history", "--db", program, "--tenant", "a", "Anna"], "Oslo"),
        (["import", "--db", program, "--tenant", "bo", "--input", lines], "lines read"),
        (["forget", *place, "--entity", "Anna", "--yes"], "episodes"),
        (["check", *place, "--rebuild"], "sound"),
        (["tenants", "--url", program, "--add", "cy"], "cy: exists"),
        (["tenants", "--url", program], "5 tenants"),
        (["tenants", "--url", owner, "--drop", "bo"], "bo: deleted"),
    ):
        memory.main(words)
        assert re.search(told, capsys.readouterr().out), words
    with pytest.raises(ValueError, match=refused.format("table tenants")):
        memory.main(["tenants", "--url", program, "--drop", "ada"])
    talk = SharedConversations(of_tenant(program, "ada"))  # type: ignore[arg-type]
    assert talk.state("1") is None
    with psycopg.connect(program) as db, pytest.raises(psycopg.Error, match="denied for table"):
        db.execute("SELECT text FROM turngraph.nodes")
    with psycopg.connect(owner) as db:
        assert db.execute("SELECT count(*) FROM turngraph.nodes").fetchone() == (0,)


# Writers, errors


def test_a_tenant_has_one_writer_and_readers_see_the_last_commit(postgres: Server) -> None:
    with (
        open_store(postgres.url, tenant="busy", wait=0.2) as one,
        open_store(postgres.url, tenant="busy", wait=0.2) as other,
        open_store(postgres.url, tenant="idle", wait=0.2) as another,
    ):
        with one.writing() as revision:
            with pytest.raises(ValueError, match=r"another process is writing to it; waited 0.2 s"):
                other.writing().__enter__()
            with other.reading() as seen, another.writing():
                assert seen == revision - 1
        with other.writing() as later:
            assert later == revision + 1
        with suppress(RuntimeError), other.writing():
            raise RuntimeError
        assert one.revision == later


def test_writers_at_once_lose_nothing(postgres: Server) -> None:
    def write(name: str) -> None:
        with MemoryGraph.open(postgres.url, tenant="crowd") as graph:
            for number in range(4):
                graph.remember(
                    f"{name} met Anna Schmidt in Town {number}.", origin=f"{name}{number}"
                )

    threads = [threading.Thread(target=write, args=(name,)) for name in ("Bo", "Cy", "Di")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with MemoryGraph.open(postgres.url, tenant="crowd") as graph:
        assert graph.stats().nodes["episodic"] == 12
        assert len(graph.store.objects("anna schmidt")) == 1
        assert graph.check() == []


def test_what_the_server_undoes_is_written_again(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from turngraph.data.memory_graph.record.postgres_database import PostgresDatabase

    commit, failures = PostgresDatabase.commit, [psycopg.errors.SerializationFailure("undone")]

    def fail_once(self: PostgresDatabase) -> None:
        if failures:
            raise failures.pop()
        commit(self)

    with MemoryGraph.open(postgres.url, tenant="again") as graph:
        monkeypatch.setattr(PostgresDatabase, "commit", fail_once)
        assert graph.remember("Anna lives in Oslo.").episodes == 1
        failures.append(psycopg.errors.DeadlockDetected("undone"))
        graph.rename("Anna", "Anna Schmidt")
        failures += [psycopg.errors.DeadlockDetected("undone") for _ in range(9)]
        with pytest.raises(ValueError, match="the server undid one"):
            graph.undo()
        failures[:] = [psycopg.errors.CrashShutdown()]
        with pytest.raises(ValueError, match="during a commit; the write may be committed or not"):
            graph.undo()
        failures[:] = [psycopg.errors.DeadlockDetected("undone")]
        assert graph.forget(episode=iter([1])).episodes == 1
        failures.clear()
        assert graph.check() == []


def test_a_statement_has_a_time_limit(postgres: Server) -> None:
    url = f"{postgres.url}&options=-c%20statement_timeout%3D50ms"
    with (
        open_store(url, tenant="slow") as store,
        pytest.raises(ValueError, match="longer than the server's statement_timeout"),
        store.reading(),
    ):
        store.db.execute("SELECT pg_sleep(10)")
    with open_store(url, tenant="slow") as store:  # the connection is of use again
        assert store.revision == 0


def test_a_full_pool_is_told(postgres: Server) -> None:
    url = f"{postgres.url}&pool_size=1"
    with (
        open_store(url, tenant="few", wait=0.2) as one,
        open_store(url, tenant="few", wait=0.2) as other,
        one.reading(),
        pytest.raises(ValueError, match=r"no connection to the server was free.*waited 0.2 s"),
    ):
        other.objects("Anna")
    with (
        open_store(url, tenant="few", wait=0.2) as one,
        one.reading(),
        pytest.raises(ValueError, match=r"no connection to the server was free"),
    ):
        open_store(url, tenant="few", wait=0.2)


def test_reads_suit_large_tenants_and_standby_servers(
    both: tuple[MemoryGraph, MemoryGraph], postgres: Server
) -> None:
    from turngraph.data.memory_graph.recall.vectors import TEXTS

    shown = "SELECT current_setting('idle_in_transaction_session_timeout')"
    _, graph = both
    graph.make_themes()
    store, scanned = graph.store, []
    with store.writing():
        assert store.db.execute(shown).fetchone() == ("10min",)
    with store.reading():
        assert store.db.execute(shown).fetchone() == ("0",)
        for changed, _ in TEXTS.values():
            scanned.append(len(list(changed(store.db, -1))))
        assert len(store.postgres._scans) >= len(TEXTS)  # type: ignore[attr-defined]
    for (changed, _), num in zip(TEXTS.values(), scanned, strict=True):
        assert len(list(changed(store.db, 0))) == num
    with open_store(postgres.url, tenant=store.title, read_only=True) as reader:
        shown = "SELECT current_setting('transaction_read_only')"
        assert reader.db.execute(shown).fetchone() == ("on",)


def test_a_lost_connection_is_replaced(postgres: Server) -> None:
    import psycopg

    with MemoryGraph.open(postgres.url, tenant="lost") as graph:
        graph.remember("Anna lives in Oslo.")
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            end = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE application_name = 'turngraph'"""
            admin.execute(end)
            assert graph.remember("Bo lives in Bergen.").episodes == 1

            def lose() -> None:
                with graph.store.reading():
                    admin.execute(end)
                    graph.store.db.execute("SELECT 1")

            with pytest.raises(ValueError, match="the connection to the server was lost"):
                lose()
        assert graph.check() == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:geheim@127.0.0.1:1/memories?tenant=a",
        "postgresql://ada:ge/heim@127.0.0.1:1/memories?tenant=a",
        "postgresql://ada:x@geheim@nowhere.invalid/memories?tenant=a&connect_timeout=1",
        "postgresql://127.0.0.1:1/memories?tenant=a&password=geheim",
        "postgresql://ada:geheim@127.0.0.1:geheim/memories?tenant=a",
        "postgresql://ada:geheim@127.0.0.1:1/memories?tenant=a&pool_size=no",
        "postgresql://ada:geheim@127.0.0.1:1/memories",
        "postgresql://ada:geheim/memories?tenant=a",
        "postgresql://ada:ge\uff1aheim@127.0.0.1:1/memories?tenant=a",
        "postgresql://ada:ge\u2100heim@127.0.0.1:1/memories?tenant=a",
        "postgresql://ada:ge[#+heim@127.0.0.1:1/memories?tenant=a",
    ],
)
def test_no_message_shows_a_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg_pool")
    with pytest.raises(ValueError, match="postgresql://") as error:
        open_store(url)
    assert "heim" not in f"{error.value}{error.value.__cause__}{caplog.text}{shown(url)}"
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_texts_that_postgresql_cannot_keep_are_refused_without_showing_them(
    postgres: Server, tmp_path: Path
) -> None:
    with MemoryGraph.open(postgres.url, tenant="odd") as graph:
        for text, what in (("Anna\0lives", "NUL"), ("Anna", "too long")):
            letters = Random(0).choices(ascii_letters, k=20_000)
            origin = None if what == "NUL" else "".join(letters)
            with pytest.raises(ValueError, match=what) as error:
                graph.remember(text, origin=origin)
            assert "Anna" not in str(error.value)
        properties = {"x": "Anna \\u0000 \\\0"}
        with pytest.raises(ValueError, match="NUL") as error:
            graph.remember("Anna", properties=properties)
        assert "Anna" not in str(error.value)
        graph.remember("Bo", properties={"x": "\\u0000 \\\\u0000"})  # no NUL, but like one
        for kept, told in (("\\u0000", "a NUL character"), ("a", "line 3.*too large")):
            line = {"kind": "theme", "id": 1, "level": 70000, "eigenvalue": 1.0}
            rows = (
                {"format": "turngraph memory graph", "version": 1},
                {"kind": "episode", "node": 1, "extractor": "x", "properties": {"x": kept}},
                line,
            )
            path = tmp_path / "odd.jsonl"
            path.write_text("\n".join(map(json.dumps, rows)).replace("\\\\u", "\\u"))
            with (
                open_store(postgres.url, tenant="imports") as store,
                pytest.raises(ValueError, match=told),
            ):
                import_jsonl(store, path)
        with graph.store.writing():
            sql = "UPDATE episodes SET properties = ?"
            graph.store.db.execute(sql, (r'{"kind": "Anna \u0000"}',))
        with pytest.raises(
            ValueError, match="NUL character, which PostgreSQL cannot read"
        ) as error:
            graph.turns()  # of an older program
        assert "Anna" not in str(error.value)
        with graph.store.writing():
            graph.store.db.execute("UPDATE episodes SET properties = '{}'")
        with pytest.raises(ValueError, match=r"#\d+ is not an episode"):
            graph.forget(episode=2**70)
        long = "x" * 5000
        graph.remember(f"Anna found {long} in Oslo. {'ß' * 3000} is a word.")
        assert len(graph.store.db.words.facts(long)) > 0
        assert graph.check() == []


def test_places_name_their_tenant(tmp_path: Path) -> None:
    url = "postgresql://host/db"
    assert of_tenant(url, "Anna Ö&?") == f"{url}?tenant=Anna%20%C3%96%26%3F"
    assert of_tenant(f"{url}?tenant=a+b&user=c+d", "a+b") == f"{url}?tenant=a%2Bb&user=c%2Bd"
    assert shown(f"{url}?tenant=a+b") == f"{url}?tenant=a%2Bb"
    assert of_tenant(f"{url}?tenant=a&sslmode=require", "a").count("tenant") == 1  # type: ignore[union-attr]
    for place, tenant, what in (
        (url, None, "needs a tenant"),
        (f"{url}?tenant=a", "b", "another tenant"),
        (url, " ", "needs a tenant"),
        (tmp_path / "a.db", "a", "a file has no tenants"),
    ):
        with pytest.raises(ValueError, match=what):
            of_tenant(place, tenant)


def test_word_search_ranks_as_sqlites(both: tuple[MemoryGraph, MemoryGraph]) -> None:
    from turngraph.data.memory_graph.memory_types import EPISODIC, THESIS

    lite, graph = (one.store.db for one in both)
    for words in (["anna"], ["oslo", "city"], ["equinor", "bergen", "cat"], ["nothing"], []):
        for kind in (THESIS, EPISODIC):
            found = graph.words.best_nodes(words, kind, 10)
            right = lite.words.best_nodes(words, kind, 10)
            assert [node for node, _ in found] == [node for node, _ in right]
            assert [score for _, score in found] == pytest.approx([score for _, score in right])
        assert graph.words.best_names(words, 10) == lite.words.best_names(words, 10)
    with closing(lite):
        lite.words.prepare()
        for phrase in ("anna schmidt", "in oslo", "oslo", "schmidt anna", "anna oslo"):
            keys = sorted(graph.words.facts(phrase).tolist())
            assert keys == sorted(lite.words.facts(phrase).tolist())
        for word in ("anna", "bergen", "nothing"):
            assert graph.words.frequency(word) == lite.words.frequency(word)
        assert graph.words.counts() == lite.words.counts()


def test_what_a_command_cannot_do_with_a_url_is_told(postgres: Server, tmp_path: Path) -> None:
    text, url = tmp_path / "a.txt", ["--url", postgres.url]
    text.write_text("Anna lives in Oslo.")
    place = ["--db", postgres.program_url(), "--tenant", "told"]
    with pytest.raises(ValueError, match="tenant=told: no such memory graph"):
        memory.main(["merge", *place, "Anna", "Bo"])
    memory.main(["remember", *place, "--input", str(text)])
    for words, message in (
        (["backup", *place, "--output", str(tmp_path / "b")], "pg_dump"),
        (["restore", *place, "--backup", str(text)], "only files are restored"),
        (["schema", *url, "--drop"], "memories of all tenants"),
        (["tenants", *url, "--drop", "nobody"], "no tenant 'nobody'"),
        (["tenants", "--url", "my.db"], "must begin with postgresql://"),
        (["show", "--db", postgres.url, "Anna"], "needs a tenant"),
    ):
        with pytest.raises(ValueError, match=message):
            memory.main(words)
