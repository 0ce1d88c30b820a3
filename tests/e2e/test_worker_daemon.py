"""The Python workers of a pipeline, as Spark forks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

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
