"""Coordination cells on ZooKeeper: a node each, all of a scope below one node.

    /grete/cells/<scope>/<name>

The version of a cell is the transaction that wrote it last. ZooKeeper itself compares the number of writes since a
node was made, which comes again when a node is removed and made again; so each removal writes the scope's node as
well, and each change checks that this was not written since the cell was read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from grete.clock import Deadline
from grete.coordination.cells import Cell, Cells, below, check_size
from grete.coordination.zookeeper.client import ZooKeeperClient
from grete.coordination.zookeeper.library import (
    KazooClient,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZnodeStat,
)
from grete.coordination.zookeeper.paths import CELLS, node_name, text_of
from grete.errors import CellChanged

_LARGEST = 1_000_000
"""Servers end the connection of a client that sends more than their jute.maxbuffer, 1 MiB."""
_LOOK_AGAIN_S = 5.0
"""In case that a notification is lost with a connection."""


_Step = Callable[[KazooClient, ZnodeStat, ZnodeStat], Any]
"""A transaction for a cell, whose scope's node and own node were read so."""


class ZooKeeperCells(Cells):
    """The cells of one scope, on the connection of `client`, which stays open."""

    def __init__(self, client: ZooKeeperClient, scope: str, *, timeout_s: float) -> None:
        self._client = client
        self._root = f"{CELLS}/{node_name(scope)}"
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._changes = 0

    def _path(self, name: str) -> str:
        return f"{self._root}/{node_name(name)}"

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        path = self._path(name)
        try:
            _, found = self._client.ask_again(
                lambda session: [session.sync_async(path), session.get_async(path)], self._timeout_s
            )
        except NoNodeError:
            return None
        return _cell(*found)

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        return self._read_all(prefix, None)

    def _read_all(self, prefix: str, watch: Callable[[object], None] | None) -> Mapping[str, Cell]:
        """`watch` is called once one of them changes, or a cell of the scope is made or removed."""
        begins = below(prefix)
        try:
            _, names = self._client.ask_again(
                lambda session: [
                    session.sync_async(self._root),
                    session.get_children_async(self._root, watch=watch),
                ],
                self._timeout_s,
            )
        except NoNodeError:
            if watch is not None:
                self._client.ensure(self._root, self._timeout_s)
                return self._read_all(prefix, watch)
            return {}
        wanted = sorted(name for name in map(text_of, names) if name.startswith(begins))
        found = ((name, self._get(name, watch)) for name in wanted)
        return {name: cell for name, cell in found if cell is not None}

    def _get(self, name: str, watch: Callable[[object], None] | None) -> Cell | None:
        try:
            [found] = self._client.ask_again(
                lambda session: [session.get_async(self._path(name), watch=watch)], self._timeout_s
            )
        except NoNodeError:
            return None  # removed meanwhile
        return _cell(*found)

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        check_size(name, value, _LARGEST, "ZooKeeper")
        path = self._path(name)
        if expected is None:
            return self._make(name, value)

        def replace(session: KazooClient, root: ZnodeStat, stat: ZnodeStat) -> Any:
            step = session.transaction()
            step.check(self._root, version=root.version)
            step.set_data(path, value, version=stat.version)
            return step

        _, stat = self._change(name, expected, replace)
        return _cell(value, stat)

    def _make(self, name: str, value: bytes) -> Cell:
        while True:
            try:
                [(_, stat)] = self._client.ask(
                    lambda session: [
                        session.create_async(self._path(name), value, acl=self._client.acl, include_data=True)
                    ],
                    self._timeout_s,
                )
            except NodeExistsError:
                raise CellChanged(name) from None
            except NoNodeError:
                self._client.ensure(self._root, self._timeout_s)
                continue
            return _cell(value, stat)

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""

        def remove(session: KazooClient, root: ZnodeStat, stat: ZnodeStat) -> Any:
            step = session.transaction()
            step.set_data(self._root, b"", version=root.version)
            step.delete(self._path(name), version=stat.version)
            return step

        self._change(name, expected, remove)

    def _change(self, name: str, expected: str, step: _Step) -> Sequence[Any]:
        """The results of the transaction, which is tried again when another cell was removed meanwhile."""
        path = self._path(name)
        while True:
            try:
                _, root, (_, stat) = self._client.ask_again(
                    lambda session: [
                        session.sync_async(path),
                        session.exists_async(self._root),
                        session.get_async(path),
                    ],
                    self._timeout_s,
                )
            except NoNodeError:
                raise CellChanged(name) from None
            if root is None or str(stat.mzxid) != expected:
                raise CellChanged(name)
            results = self._try(step, root, stat)
            if results is not None:
                return results

    def _try(self, step: _Step, root: ZnodeStat, stat: ZnodeStat) -> Sequence[Any] | None:
        return self._client.transact(lambda session: step(session, root, stat), self._timeout_s)

    def wait(self, prefix: str, seen: Mapping[str, Cell], deadline: Deadline) -> Mapping[str, Cell]:
        """See Cells. ZooKeeper notifies of changes."""
        while True:
            before = self._changes
            found = self._read_all(prefix, self._on_change)
            if found != seen or deadline.is_over:
                return found
            with self._changed:
                if self._changes == before:
                    self._changed.wait(min(deadline.left_s, _LOOK_AGAIN_S))

    def _on_change(self, event: object) -> None:
        """One method for all, so that the client keeps it once however often it is waited."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def clear(self) -> None:
        """See Cells. The scope's node goes last, when nothing is below it."""
        with suppress(NoNodeError):
            while True:
                super().clear()
                with suppress(NotEmptyError):
                    self._client.ask_again(
                        lambda session: [session.delete_async(self._root)], self._timeout_s
                    )

    def close(self) -> None:
        """See Cells."""


def _cell(value: bytes, stat: ZnodeStat) -> Cell:
    return Cell(value, str(stat.mzxid))
