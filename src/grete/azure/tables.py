"""Rows of one table: read by key or by range, written on the ETag that was read.

The table is created by the first write that finds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from grete.azure.library import AzureError, MatchConditions, UpdateMode
from grete.azure.storage import AzureStorage, code_of, in_created
from grete.errors import CoordinationError

LARGEST_BATCH = 100
"""Rows of one transaction, all of one partition."""
_MISSING = frozenset(("ResourceNotFound", "TableNotFound", "EntityDoesNotExist"))
_CHANGED = frozenset(("UpdateConditionNotSatisfied", "EntityAlreadyExists", *_MISSING))
Row = Mapping[str, Any]


class RowChanged(CoordinationError):
    """The row is not as it was read, or is gone. Nothing was written."""


class Table:
    """The rows of a table, as mappings with `PartitionKey` and `RowKey`."""

    def __init__(self, storage: AzureStorage, name: str) -> None:
        self.name = name
        self._storage = storage
        self._client = storage.table(name)

    def read(self, partition: str, row: str) -> tuple[Row, str] | None:
        """The row with its ETag, None when there is none."""
        with self._translated("reading a row"):
            try:
                found = self._client.get_entity(partition, row)
            except AzureError as error:
                if code_of(error) in _MISSING:
                    return None
                raise
        return found, str(found.metadata["etag"])

    def read_partition(
        self, partition: str, *, first: str = "", before: str = ""
    ) -> Sequence[tuple[Row, str]]:
        """Its rows with their ETags, by key; those from `first` on and before `before` where they are given."""
        wanted = "PartitionKey eq @partition"
        wanted += " and RowKey ge @first" if first else ""
        wanted += " and RowKey lt @before" if before else ""
        given = {"partition": partition, "first": first, "before": before}
        with self._translated("reading rows"):
            try:
                found = list(self._client.query_entities(wanted, parameters=given))
            except AzureError as error:
                if code_of(error) in _MISSING:
                    return ()
                raise
        return [(row, str(row.metadata["etag"])) for row in found]

    def write(self, row: Row, *, etag: str | None) -> str:
        """Replace the row that has this ETag, or create it where `etag` is None; returns its new ETag.

        Raises:
            RowChanged: it has another one, or is there already.
        """

        def send() -> Mapping[str, Any]:
            if etag is None:
                return self._client.create_entity(row)
            return self._client.update_entity(
                row, mode=UpdateMode.REPLACE, etag=etag, match_condition=MatchConditions.IfNotModified
            )

        return str(self._with_table("writing a row", send)["etag"])

    def delete(self, partition: str, row: str, *, etag: str) -> None:
        """Delete the row that has this ETag.

        Raises:
            RowChanged: it has another one, or is gone.
        """
        condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        with self._translated(
            "deleting a row"
        ):  # as a transaction: by itself the client takes a missing row for deleted
            self._client.submit_transaction(
                [("delete", {"PartitionKey": partition, "RowKey": row}, condition)]
            )

    def transact(self, upserts: Sequence[Row], deletes: Sequence[Row] = ()) -> None:
        """Write and delete rows of one partition, all of them or none; at most LARGEST_BATCH.

        Raises:
            RowChanged: one that is to be deleted is gone.
        """
        assert 0 < len(upserts) + len(deletes) <= LARGEST_BATCH
        operations: list[Any] = [("upsert", row, {"mode": UpdateMode.REPLACE}) for row in upserts]
        operations += [("delete", row) for row in deletes]
        self._with_table("writing rows", lambda: self._client.submit_transaction(operations))

    def _with_table(self, what: str, send: Callable[[], Any]) -> Any:
        with self._translated(what):
            return in_created(
                send, self._client.create_table, missing="TableNotFound", present="TableAlreadyExists"
            )

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return self._storage.answering(f"{what} of the table {self.name}", _CHANGED, RowChanged)
