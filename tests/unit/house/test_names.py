"""Names say what they name: a class's is used once, and modules and classes are the field's nouns (STYLE 18)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src" / "grete"
VAGUE = frozenset({"ahead", "asked", "course", "kept", "lasting", "opened", "seats", "standing", "told"})


def test_no_two_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SOURCES)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice


def test_no_module_or_class_is_named_by_a_word_that_says_nothing() -> None:
    for path in SOURCES.rglob("*.py"):
        names = [path.stem]
        names += [
            node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
        ]
        for name in names:
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
            assert not words & VAGUE, f"{path}: {name}"
