"""The example notebook, cell after cell as a kernel runs them, and what its objects draw."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from grete import notebook
from grete.clock import SystemClock
from grete.errors import ConfigError, JobError, JobNotFound
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example's folder, in which the notebook's kernel works."""
    copy = tmp_path / "notebook"
    shutil.copytree(EXAMPLE, copy)
    monkeypatch.chdir(copy)
    yield copy
    for row in notebook.jobs():
        if row["run_by"] is not None:
            notebook.job(row["job"]).stop()


def run(source: str, names: dict[str, Any]) -> Any:
    """A cell's statements, and the value of its last expression."""
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body[-1].value)
        del tree.body[-1]
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - the example of this repository
    return None if last is None else eval(compile(last, "cell", "eval"), names)  # noqa: S307 - the same


def test_the_example_runs_from_its_first_cell_to_its_last(folder: Path) -> None:
    cells = json.loads((folder / "totals.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    values = [run("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    _, submitted, _, written, checkpoint, history, stopped, jobs = values
    assert "running" in submitted._repr_html_() or stopped == "stopped"
    last = {row["customer"]: row["cents"] for row in written["value"]}
    assert last == {"ada": 1280, "bob": 400, "eve": 999}
    assert [row["offset"] for row in checkpoint] == ["4"]
    assert "deployment" in history._repr_html_()
    assert stopped == "stopped"
    assert [(row["job"], row["state"]) for row in jobs] == [("totals", "stopped")]


@pytest.mark.spark
def test_an_operator_asks_a_jobs_tables_with_sql(folder: Path, home: Path, spark: SparkSession) -> None:
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        system.create_stream(StreamSpec("orders", 1))
        orders = (b'{"customer": "ada", "cents": 700}', b"{}", b'{"customer": "bob", "cents": 1400}')
        system.append("orders", [Message(b"k", order, 1_000) for order in orders])
    aside = {"task__poison__policy": "dead-letter", "task__poison__dead-letter__stream": "local.dead"}
    totals = notebook.submit("totals.properties", **aside)
    totals.watch(seconds=60, until_behind=0)
    [block] = [
        one for one in re.findall(r"```python\n(.*?)```", NOTEBOOK.read_text(), re.DOTALL) if "SELECT" in one
    ]
    run(block.replace(".show()", ".collect()"), {"spark": spark, "totals": totals})
    found = spark.sql("SELECT task, key, value FROM totals WHERE CAST(value AS INT) > 1000").collect()
    assert [tuple(row) for row in found] == [("Partition 0", "bob", "1400")]
    assert spark.table("checkpoints").count() == spark.table("lag").count() == 1
    assert [row["key"] for row in totals.store("totals", task="Partition 0")] == ["ada", "bob"]
    [letter] = totals.dead_letters()
    assert (letter["from"], letter["error"]) == ("local.orders.0 offset 1", "KeyError('customer')")
    totals.stop()


def test_a_job_that_cannot_run_is_an_error_with_what_it_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.container\.count='two'"):
        notebook.submit("totals.properties", job__container__count="two")
    with pytest.raises(JobError, match="orders"):
        notebook.submit("totals.properties")
    with pytest.raises(JobNotFound, match="there is no job nothing"):
        notebook.job("nothing")


def test_foreign_text_in_a_table_is_only_text() -> None:
    table = notebook.NotebookTable(("key",), [{"key": "<script>alert(1)</script>\x1b[31m"}] * 1_500)
    drawn = table._repr_html_()
    assert "<script>" not in drawn
    assert "\x1b" not in drawn
    assert "and 500 more rows" in drawn
    assert len(table.frame()) == 1_500
