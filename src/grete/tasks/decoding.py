"""Columns of bytes to what a task sees: by column where that is the same as value by value, and cheaper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from grete.api import Serde
from grete.application.serdes import BytesSerde, JsonSerde, StringSerde
from grete.arrow import pa


def values_of(column: pa.Array, serde: Serde) -> Iterable[Any]:
    """The values of a binary column, in order; each is made, and fails, only when it is asked for.

    A serde of the application's own, a subclass included, gets every value through its `from_bytes`.
    """
    kind = type(serde)
    if kind is StringSerde:
        try:
            return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return] # pyarrow has no type stubs
        except pa.ArrowInvalid:
            pass  # some value is not UTF-8; one by one shows which
    values = column.to_pylist()
    if kind is BytesSerde:
        return values  # type: ignore[no-any-return] # pyarrow has no type stubs
    if kind is JsonSerde and column.null_count == 0:
        return map(orjson.loads, values)
    return map(serde.from_bytes, values)
