"""Spark's state read as docs/migrating.md says it, in a session that has done nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from grete.testing.waiting import patient

DOCUMENT = Path(__file__).parents[2] / "docs/migrating.md"
SESSION = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
CHECKPOINT = {checkpoint!r}
"""
SHOW = """
print(sorted((row.key.word, row.value["count"]) for row in state.collect()))
"""


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_advice_on_reading_state_works_in_a_fresh_session(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/words.json").write_text('{"word":"a"}\n{"word":"b"}\n{"word":"a"}\n')
    counted = spark.readStream.schema("word string").json(f"{tmp_path}/in").groupBy("word").count()
    writer = counted.writeStream.format("noop").outputMode("complete").trigger(availableNow=True)
    assert writer.option("checkpointLocation", f"{tmp_path}/query").start().awaitTermination(patient(120))
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    advice = next(block for block in blocks if "statestore" in block)
    program = SESSION.format(checkpoint=f"{tmp_path}/query") + advice + SHOW
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "[('a', 2), ('b', 1)]"
