"""The container's end of `config.secret_channel`: workers on executors get what the job's references stand for."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Mapping

import orjson

from grete.channel.certificate import Identity
from grete.channel.tls import CONNECT_S, send_at_once
from grete.config.secret_channel import LENGTH, SecretsAddress
from grete.config.secrets import for_executors, references, resolve_secrets
from grete.errors import ConfigError

_log = logging.getLogger("grete.container")
_AT_ONCE = 32


class SecretServer:
    """Listens while its process lives. Values are read when they are asked for, so a rotated file is seen."""

    def __init__(self, config: Mapping[str, str], host: str, bind: str) -> None:
        """`host` is what executors call this machine, `bind` where it listens.

        Raises:
            OSError: it cannot listen there.
            MissingExtra: see `Identity.create`.
        """
        self.config = config
        """The configuration whose references are resolved. May be replaced."""
        self._room = threading.Semaphore(_AT_ONCE)
        self._identity = Identity.create()
        self._listener = socket.create_server((bind, 0))
        self.address = SecretsAddress(host, self._listener.getsockname()[1], secrets.token_bytes(32))
        threading.Thread(target=self._accept, name="grete-secrets", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._listener.fileno() < 0:
                    return
                _log.warning("no worker can ask for secrets for now: %s", error)
                time.sleep(1)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()  # who has the key asks again
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            plain.settimeout(CONNECT_S)
            send_at_once(plain)
            with plain, self._identity.context.wrap_socket(plain, server_side=True) as connection:
                self._answer(connection)
        except (OSError, ValueError) as error:
            _log.debug("a worker that asked for secrets has got none: %s", error)
        finally:
            self._room.release()

    def _answer(self, connection: ssl.SSLSocket) -> None:
        try:
            self.address.ends.prove_server(connection, self._identity.certificate)
        except ValueError as error:
            _log.warning(
                "a connection that asked for the job's secrets without its key was refused: %s", error
            )
            return
        values = orjson.dumps(resolved_references(self.config))
        connection.sendall(LENGTH.pack(len(values)) + values)

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def resolved_references(config: Mapping[str, str]) -> dict[str, str]:
    """By reference what executors may ask for; what this process cannot resolve is missing."""
    found = {}
    for value in for_executors(config).values():
        for reference in references(value):
            with contextlib.suppress(ConfigError):  # a worker that needs it says so, with the key
                found[reference] = resolve_secrets(reference, os.environ)
    return found
