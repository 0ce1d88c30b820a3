"""Cases of java.util.HashMap's order."""

from __future__ import annotations

from typing import Any

from grete.model.ids import SystemStreamPartition, ssp_label
from grete.wire.java_hash import JavaHashMap, ssp_hash, string_hash, system_stream_hash
from grete_workbench.vectors.registry import Case, Difference, checker, has_op, same


def ssp_of(parts: list[Any]) -> SystemStreamPartition:
    """An SSP from its form in the files."""
    return SystemStreamPartition(parts[0], parts[1], parts[2], parts[3] if len(parts) > 3 else -1)


def ssp_parts(ssp: SystemStreamPartition) -> list[Any]:
    """An SSP in its form in the files."""
    return [ssp.system, ssp.stream, ssp.partition, ssp.key_bucket]


@checker(
    "java_hash_order",
    knows=has_op(
        "String.hashCode",
        "SystemStreamPartition.hashCode",
        "HashMap order",
        "HashSet<SystemStreamPartition> order",
    ),
)
def check_order(case: Case) -> None:
    """Hash codes and iteration orders."""
    match case["op"]:
        case "String.hashCode":
            same("hash", string_hash(case["input"]), case["hash"])
        case "SystemStreamPartition.hashCode":
            ssp = ssp_of(case["ssp"])
            same("hash", ssp_hash(ssp), case["hash"])
            same("stream hash", system_stream_hash(ssp.system, ssp.stream), case["SystemStream.hashCode"])
            same("toString", ssp_label(ssp), case["toString"])
        case "HashMap order":
            _check_map(case)
        case "HashSet<SystemStreamPartition> order":
            added = JavaHashMap.of(ssp_of(parts) for parts in case["add_order"])
            same("iteration", [ssp_parts(ssp) for ssp in added], case["iteration"])
            copied = JavaHashMap.hash_set_of(added)
            same("copy", [ssp_parts(ssp) for ssp in copied], case["copy_of_it"])
        case op:
            raise Difference(f"unknown op {op!r}")


def _check_map(case: Case) -> None:
    keys: list[str] = case["keys"]
    put_each = JavaHashMap.of(keys)
    same("put_each", list(put_each), case["put_each"])
    orders = {
        "copy_constructor_of_put_each": list(JavaHashMap.copy_of(put_each)),
        "empty_map_putAll_of_linked": list(JavaHashMap.copy_of(dict.fromkeys(keys))),
        "HashSet_of_list": list(JavaHashMap.hash_set_of(keys)),
    }
    for name, got in orders.items():
        expected = case["put_each"] if case[name] == "same" else case[name]
        same(name, got, expected)
    copied = JavaHashMap.copy_of(put_each)
    for key in list(dict.fromkeys(keys))[::2]:
        copied.remove(key)
    same("copy_then_remove_every_2nd", list(copied), case["copy_then_remove_every_2nd"])
