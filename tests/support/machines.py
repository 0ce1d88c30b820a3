"""Machines of their own on this one: processes in a network and with a GRETE_HOME that the others do not see.

Each machine has an address at which the others reach it, and nothing of this one's network; what listens on this
one's loopback, at the ports that are named, is at the same addresses there. `GRETE_HOME` is the same path on all.

    python -m tests.support.machines inside|outside FOLDER PORT...     passes connections on by sockets in FOLDER
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from grete.testing.waiting import eventually

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Machine:
    """One of them, until it is ended."""

    def __init__(self, folder: Path, home: Path, ports: Sequence[int], address: str) -> None:
        self.address = address
        forward = [sys.executable, "-m", __name__, "inside", str(folder), *map(str, ports)]
        script = 'ip link set lo up && mount -t tmpfs none "$0" && exec "$@"'
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script, str(home), *forward],
            stdout=subprocess.PIPE,
        )
        self.pid = self._holder.pid
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """A process there."""
        there = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--wdns=/", "--", *command]
        return subprocess.Popen(there, env={**os.environ, **environment}, stdout=output, stderr=output)

    def end(self) -> None:
        """It is gone; what still runs there has no network any more."""
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@contextmanager
def two_machines(folder: Path, home: Path, ports: Sequence[int]) -> Iterator[tuple[Machine, Machine]]:
    """Two, with a cable between them. `ports` are those of this machine's servers."""
    folder.mkdir()
    home.mkdir(exist_ok=True)
    outside = subprocess.Popen(
        [sys.executable, "-m", __name__, "outside", str(folder), *map(str, ports)], stdout=subprocess.DEVNULL
    )
    machines: list[Machine] = []
    try:
        eventually(lambda: len(list(folder.iterdir())) == len(ports), "the way to the servers")
        for number in (1, 2):
            machines.append(Machine(folder, home, ports, f"10.77.0.{number}"))
        one, other = machines
        plug = f"name eth0 netns {one.pid} type veth peer name eth0 netns {other.pid}"
        subprocess.run(["ip", "link", "add", *plug.split()], check=True)
        for machine in machines:
            for line in (f"addr add {machine.address}/24 dev eth0", "link set eth0 up"):
                command = ["nsenter", "--target", str(machine.pid), "--net", "ip", *line.split()]
                subprocess.run(command, check=True)
        yield one, other
    finally:
        for machine in machines:
            machine.end()
        outside.kill()
        outside.wait()


async def _forward(where: str, folder: Path, ports: Sequence[int]) -> None:
    for port in ports:
        way = str(folder / str(port))
        if where == "inside":
            to = _to(partial(asyncio.open_unix_connection, way))
            await asyncio.start_server(to, "127.0.0.1", port)
        else:
            to = _to(partial(asyncio.open_connection, "127.0.0.1", port))
            await asyncio.start_unix_server(to, way)
    print("ready", flush=True)
    await asyncio.Event().wait()


def _to(
    connect: Callable[[], Awaitable[Ends]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            to_reader, to_writer = await connect()
            await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))
        writer.close()

    return serve


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(_forward(sys.argv[1], Path(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
