"""Rows of a pipeline: which columns they may have."""

from __future__ import annotations

import pytest

from grete.errors import ConfigError
from grete.spark.sinks.rows import check_types


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_column_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"column '{name}' must be string or binary, it is int"):
        check_types({"key": "string", "value": "binary", "other": "date", name: "int"}, ("key", "value"))
