"""A PostgreSQL server of a test's own: Debian's programs, a folder and a port that nobody else has."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grete.testing.waiting import eventually

_USER = "grete"


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is not installed: run make services"
    return path


class PostgreSql:
    """Starts with an empty database, which asks for a password. The server refuses to run as root: `nobody` does."""

    def __init__(self) -> None:
        self.password = secrets.token_hex(8)
        self._directory = Path(tempfile.mkdtemp(prefix="grete-postgresql-"))
        self._as = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        secret = self._directory / "password"
        secret.write_text(self.password)
        if self._as:
            for path in (self._directory, secret):
                shutil.chown(path, "nobody", "nogroup")
        options = [f"--username={_USER}", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync"]
        self._run("initdb", "-D", str(self._data), *options)
        self.start()

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def url(self) -> str:
        """For JDBC, without the login."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def config(self) -> dict[str, str]:
        """The settings of an output in it, but for table and name."""
        return {"format": "jdbc", "url": self.url, "user": _USER, "password": self.password}

    def start(self) -> None:
        """Start the server, as a process of ours; it answers on return."""
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off")
        command = [_program("postgres"), "-D", str(self._data), "-p", str(self.port)]
        command += [word for setting in settings for word in ("-c", setting)]
        with (self._directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, cwd="/", stdout=log, stderr=subprocess.STDOUT, **self._as
            )  # type: ignore[call-overload]
        eventually(self._answers, "PostgreSQL answers")

    def _answers(self) -> bool:
        ready = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """Stop the server at once; what is connected is cut off."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(30)

    def close(self) -> None:
        """End it, if it runs, and remove everything."""
        if self._server.poll() is None:
            self.stop()
        shutil.rmtree(self._directory)

    def sql(self, statement: str) -> list[Sequence[str]]:
        """Run a statement; the rows of a query, as text."""
        login = {
            "PGPASSWORD": self.password,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": _USER,
        }
        done = subprocess.run(
            [_program("psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d", "postgres"],
            input=statement,
            env={**os.environ, **login},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [_program(program), *arguments], cwd="/", check=True, stdout=subprocess.DEVNULL, **self._as
        )  # type: ignore[call-overload]
