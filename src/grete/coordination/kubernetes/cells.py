"""Coordination cells on Kubernetes, a Lease each: so that the rights of an election suffice, with a few verbs more.

A ConfigMap would take rights that show every other ConfigMap of the namespace. The value is in an annotation, of
which an object may have 256 KiB. A write has an id of its own there: the API server keeps the version of an object
that is written as it is, and a write whose answer was lost is recognised by it.
"""

from __future__ import annotations

import base64
import hashlib
import random
import uuid
from collections.abc import Mapping
from contextlib import suppress

from grete.clock import Deadline, SystemClock
from grete.coordination.cells import Cell, Cells, below, check_size
from grete.coordination.kubernetes.api_server import ApiServer, Document, Selection
from grete.coordination.kubernetes.lease import lease_name
from grete.errors import CellChanged, CoordinationUnreachable

_SCOPE, _NAME, _VALUE, _WRITE = "grete/scope", "grete/cell", "grete/value", "grete/write"
_LABEL = "grete/cells-of"
_DIGEST = 40
_LARGEST = 190_000
"""In base64 and with our other annotations within 256 KiB."""
_PAUSES_S = (0.02, 0.5)
_WATCH_S = 10.0
"""A connection that was dropped without a word is noticed after so long: a watch begins again then."""


class KubernetesCells(Cells):
    """The cells of one scope, in the Leases at `path`. Calls take `timeout_s` at most."""

    def __init__(self, server: ApiServer, path: str, prefix: str, scope: str, *, timeout_s: float) -> None:
        """Closing it leaves `server` open for its other users."""
        self._server = server
        self._path = path
        self._prefix = f"{prefix}-cell"
        self._scope = scope
        self._label = hashlib.sha256(f"{prefix}\n{scope}".encode()).hexdigest()[:_DIGEST]
        self._selector = f"{_LABEL}={self._label}"
        self._timeout_s = timeout_s

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        document = self._server.read(self._place(name), self._timeout_s)
        return None if document is None else _cell(document)

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        return self._below(prefix, self._server.select(self._path, self._selector, self._timeout_s))

    def _below(self, prefix: str, selection: Selection) -> dict[str, Cell]:
        names = {_annotations(each)[_NAME]: each for each in selection.documents}
        return {name: _cell(each) for name, each in names.items() if name.startswith(below(prefix))}

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        check_size(name, value, _LARGEST, "Kubernetes")
        write = uuid.uuid4().hex
        document = self._document(name, value, write, expected)

        def attempt(timeout_s: float) -> Document | None:
            if expected is None:
                return self._server.create(self._path, document, timeout_s)
            return self._server.replace(self._place(name), document, timeout_s)

        deadline, is_open = self._deadline(), False
        while True:
            with suppress(CoordinationUnreachable):
                written = attempt(deadline.left_s or self._timeout_s)
                if written is not None:
                    return _cell(written)
                if not is_open:
                    raise CellChanged(name)
            is_open = True
            found = self._server.read(self._place(name), self._timeout_s)
            if found is not None and _annotations(found).get(_WRITE) == write:
                return _cell(found)
            self._check_undone(name, found, expected, deadline)

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        deadline, is_open = self._deadline(), False
        while True:
            with suppress(CoordinationUnreachable):
                is_removed = self._server.remove(
                    self._place(name), _version_fields(expected), deadline.left_s or self._timeout_s
                )
                if is_removed:
                    return
                if not is_open:
                    raise CellChanged(name)
            is_open = True
            found = self._server.read(self._place(name), self._timeout_s)
            self._check_undone(name, found, expected, deadline)

    def _check_undone(
        self, name: str, found: Document | None, expected: str | None, deadline: Deadline
    ) -> None:
        """After an attempt without an answer: go on when it has changed nothing, and there is time.

        Raises:
            CoordinationUnreachable: another process has written since, so whether we have is not known any more.
        """
        if (None if found is None else _cell(found).version) != expected or not deadline.pause():
            raise CoordinationUnreachable(
                f"whether coordination cell {name} of {self._scope} was written is not known: the API server did not "
                f"answer"
            )

    def wait(self, prefix: str, seen: Mapping[str, Cell], deadline: Deadline) -> Mapping[str, Cell]:
        """See Cells. The API server says when to look again."""
        while True:
            selection = self._server.select(self._path, self._selector, self._timeout_s)
            found = self._below(prefix, selection)
            if found != seen or deadline.is_over:
                return found
            self._server.watch(
                self._path, self._selector, selection.version, min(deadline.left_s, _WATCH_S), self._timeout_s
            )

    def close(self) -> None:
        """See Cells."""

    def _deadline(self) -> Deadline:
        return Deadline(SystemClock(), self._timeout_s, pauses_s=_PAUSES_S, spread=random.random)

    def _lease_name(self, name: str) -> str:
        return lease_name(self._prefix, f"{self._scope}\n{name}")

    def _place(self, name: str) -> str:
        return f"{self._path}/{self._lease_name(name)}"

    def _document(self, name: str, value: bytes, write: str, expected: str | None) -> Document:
        annotations = {
            _SCOPE: self._scope,
            _NAME: name,
            _VALUE: base64.b64encode(value).decode(),
            _WRITE: write,
        }
        metadata = {
            "name": self._lease_name(name),
            "labels": {_LABEL: self._label},
            "annotations": annotations,
        }
        return {"metadata": metadata if expected is None else {**metadata, **_version_fields(expected)}}


def _annotations(document: Document) -> Mapping[str, str]:
    found: Mapping[str, str] = document["metadata"].get("annotations") or {}
    return found


def _cell(document: Document) -> Cell:
    """A recreated object has another uid: the version says which one it was."""
    metadata = document["metadata"]
    value = base64.b64decode(_annotations(document)[_VALUE])
    return Cell(value, f"{metadata['uid']}/{metadata['resourceVersion']}")


def _version_fields(version: str) -> dict[str, str]:
    uid, _, resource_version = version.partition("/")
    return {"uid": uid, "resourceVersion": resource_version}
