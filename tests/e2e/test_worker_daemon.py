"""The Python workers of a pipeline, as Spark forks them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from grete.testing.waiting import patient

pytestmark = pytest.mark.spark


def test_workers_have_their_imports_from_their_parent_which_had_no_thread_of_its_own_to_lose(
    spark: SparkSession,
) -> None:
    """A process that is forked has the thread alone that forked. Of Arrow's allocator it is known that it copes."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import os
        import sys
        from pathlib import Path

        import pyspark

        parent = os.getppid()
        threads = [task / "comm" for task in Path(f"/proc/{parent}/task").iterdir()]
        names = sorted(path.read_text().strip() for path in threads)
        said = {
            "command": [Path(f"/proc/{parent}/cmdline").read_text().replace("\0", " ").strip()],
            "threads": [",".join(name for name in names if name != "jemalloc_bg_thd")],
            "frozen": [gc.get_freeze_count() > 10_000],
            "known": ["grete.spark.sinks.staged" in sys.modules and "pyarrow.compute" in sys.modules],
            "archive": [".zip" in str(pyspark.__file__)],
            "sockets": [os.environ.get("PYTHON_WORKER_FACTORY_SOCK_DIR", "")],
        }
        for _ in batches:
            yield pa.RecordBatch.from_pydict(said)

    layout = "command string, threads string, frozen boolean, known boolean, archive boolean, sockets string"
    [found] = spark.range(1, numPartitions=1).mapInArrow(look, layout).collect()
    assert found.command.endswith("-m grete.spark.worker_daemon pyspark.worker")
    assert "," not in found.threads
    assert (found.frozen, found.known, found.archive) == (True, True, False)
    assert found.sockets == spark.conf.get("spark.python.unix.domain.socket.dir")
    assert Path(found.sockets).stat().st_mode & 0o077 == 0, "who can connect to a worker has it run anything"
    assert any(Path(found.sockets).iterdir()), "the socket of the process that workers are forked from"


BESIDE = """
import sys
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.spark.session.container_session import build_context, build_session

def same(batches):
    yield from batches

SparkSession.builder.master("local[1]").getOrCreate().stop()
context = build_context("tasks", Settings.of({"spark.master": "local[2]"}))
assert context.parallelize([1, 2]).map(lambda one: one + 1).sum() == 5
context.stop()
spark = build_session("pipeline", Settings.of({"spark.master": "local[2]"}))
print(spark.range(3).mapInArrow(same, "id long").count())
spark.stop()
"""


def test_a_program_that_has_had_a_session_of_its_own_runs_jobs_in_its_jvm(tmp_path: Path) -> None:
    """Its JVM knows nothing of what ours are started with: no folder for sockets, no name of an interpreter."""
    (tmp_path / "beside.py").write_text(BESIDE)
    own = {key: value for key, value in os.environ.items() if not key.startswith(("GRETE_WORKER", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "beside.py")],
        env=own,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(120),
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
