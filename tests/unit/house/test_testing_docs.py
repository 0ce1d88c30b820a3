"""The tests that docs/tutorial.md and docs/testing.md show, run as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "examples" / "flights"))


@pytest.mark.parametrize("document", ["docs/tutorial.md", "docs/testing.md"])
def test_the_examples_of_the_documents_work_as_written(document: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    [example] = [block for block in blocks if "with JobUnderTest(" in block]
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example, document, "exec"), names)  # noqa: S102 - our own document
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test()
