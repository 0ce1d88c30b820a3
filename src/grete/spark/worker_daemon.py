"""The process that Spark forks a pipeline's Python workers from: it has imported what each of them needs.

Spark's own has imported little, so that each worker spent 0.5 s of a processor on imports. And a worker collects
garbage after each task: what is frozen here is not searched for it, 25 ms a task, half of what the workers did in a
pass-through.

Spark imports nothing before it forks, for fear of threads that a forked process would not have. There is one, of
Arrow's allocator, which starts again after a fork; numpy starts none, since Spark allows a worker's libraries one for
each core of its task: `tests/e2e/test_worker_daemon.py`.

Run as `python -m grete.spark.worker_daemon pyspark.worker`, as `spark.python.daemon.module` says.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

from pyspark import daemon

from grete.arrow import pa

_NEEDED = ("pyspark.worker", "grete.spark.pipeline.planned_source", "grete.spark.sinks.staged")


def main() -> None:
    """Import, freeze, and be Spark's daemon."""
    for name in _NEEDED:
        with suppress(ModuleNotFoundError):  # the source stands on what Spark 4.0 and 4.1 lack
            import_module(name)
    pa.array([0])  # Arrow imports pandas, where it is, when it makes its first array
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
