"""PySpark's private doors to Spark's JVM are in one file (`grete.spark.jvm`), and tests/e2e opens each of them."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src" / "grete"
PRIVATE = frozenset(
    {
        *("_jvm", "_jsc", "_jdf", "_jsq", "_jconf", "_jsparkSession", "_jschema", "_jc", "_jrdd", "_gateway"),
        *("_active_spark_context", "_ensure_initialized", "_instantiatedSession", "_activeSession", "_conf"),
        *("_get_j_spark_session_class", "_jwrite", "_jreader", "PythonUtils"),
    }
)


def test_they_are_named_in_one_file() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno} {node.attr}"
        for path in (SOURCES / "spark").rglob("*.py")
        if path.name != "jvm.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert not found
