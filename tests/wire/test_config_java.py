"""Numbers, lists and .properties are read as OpenJDK 17 reads them; each expectation was printed by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grete_workbench.vectors.config_cases import check_config
from grete_workbench.vectors.registry import Difference


def failure(text: str) -> dict[str, str]:
    return {"throws": "java.lang.NumberFormatException", "message": text}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("\\\n#x=1\ny=2", {"y": "2"}),
        ("\\", {"": ""}),
        ("\\\n", {"": ""}),
        ("\\\r\n", {}),
        ("\\\n\n", {}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("a\\:b=c", {"a:b": "c"}),
        ("a : b", {"a": "b"}),
        ("a == b", {"a": "= b"}),
        ("a\\\\=b", {"a\\": "b"}),
        ("a\\", {"a": ""}),
        ("a b=c", {"a": "b=c"}),
        ("!x\n  # y\nk", {"k": ""}),
        ("a=1\\\r\n  2\r\nb=3\rc=4", {"a": "12", "b": "3", "c": "4"}),
        ("#c\\\nd=1", {"d": "1"}),
        ("=v", {"": "v"}),
        (" \\ a=1", {" a": "1"}),
        ("a=\\q\\t.", {"a": "q\t."}),
        ("a=b  ", {"a": "b  "}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "é\U0001f600"}),
        (
            "a=\\u12",
            {"throws": "java.lang.IllegalArgumentException", "message": "Malformed \\uxxxx encoding."},
        ),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, result: dict[str, str]) -> None:
    check_config({"op": "properties", "file_utf8": text, "result": result})


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ("+5", {"getInt": 5, "getDouble": "5.0"}),
        ("40000", {"getInt": 40000, "getShort": failure('Value out of range. Value:"40000" Radix:10')}),
        ("-32769", {"getShort": failure('Value out of range. Value:"-32769" Radix:10')}),
        ("\u0663", {"getInt": 3, "getShort": 3}),
        ("9223372036854775808", {"getLong": failure('For input string: "9223372036854775808"')}),
        ("1.2.3", {"getDouble": failure("multiple points")}),
        ("NaN", {"getDouble": "NaN"}),
        ("infinity", {"getDouble": failure('For input string: "infinity"')}),
        ("0x1.8p1", {"getDouble": "3.0"}),
        ("0x10", {"getDouble": failure('For input string: "0x10"')}),
        (",", {"getList": []}),
        (" , ", {"getList": []}),
        (",a", {"getList": ["", "a"]}),
        ("a\u00a0,b", {"getList": ["a\u00a0", "b"]}),
        ("a\x0b,b", {"getList": ["a", "b"]}),
    ],
)
def test_values_are_read_as_java_reads_them(value: str, fields: dict[str, Any]) -> None:
    check_config({"op": "typed", "value": value, **fields})


@pytest.mark.parametrize(
    "case",
    [
        {"op": "typed", "value": "5", "getInt": 6},
        {"op": "typed", "value": "x", "getInt": failure("other words")},
        {"op": "typed", "value": "x", "getInt": 1},
        {"op": "typed", "value": "5", "getInt": failure('For input string: "5"')},
        {"op": "typed", "value": "5", "getFloat": 5},
        {"op": "JobConfig", "config": {}, "no_such_field": 1},
        {"op": "no such operation"},
    ],
)
def test_the_check_notices_a_difference(case: dict[str, Any]) -> None:
    with pytest.raises(Difference):
        check_config(case)


@pytest.mark.parametrize("name", ["config", "config_env_and_properties"])
def test_refusals_are_in_the_words_of_the_real_one(name: str) -> None:
    document = json.loads((Path(__file__).parent / "vectors" / f"{name}.json").read_bytes())
    for case in document["cases"]:
        check_config(case)
