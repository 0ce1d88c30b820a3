"""A pipeline's function that failed in a Python worker: what it raised, where, and the way out."""

from __future__ import annotations

import pytest

from grete.errors import ApplicationError, ConfigError, JobError
from grete.spark.failures.failed_functions import raised_by_function
from grete.spark.failures.translation import executor_error

UNPICKLED = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/spark/pyspark.zip/pyspark/worker.py", line 3602, in main
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "/spark/pyspark.zip/pyspark/serializers.py", line 454, in loads
    return cloudpickle.loads(obj, encoding=encoding)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
MISSING = f"{UNPICKLED}ModuleNotFoundError: No module named 'elsewhere'\n"
RAISED_AT_IMPORT = f"""{UNPICKLED}  File "/node/app/1/using.py", line 7, in <module>
    import licensed
  File "/node/app/1/licensed.py", line 5, in <module>
    raise RuntimeError("no licence")
RuntimeError: no licence
"""
RAISED_BY_A_ROW = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/node/app/1/using.py", line 9, in seen
    return 1 / value
           ~~^~~~~~~
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/node/app/1/using.py", line 11, in seen
    raise shop.errors.Refused(f"row 7:{text}")
shop.errors.Refused: row 7:
ModuleNotFoundError: No module named 'x'
"""


def raised(text: str, *, has_worked: bool = False) -> object:
    return raised_by_function(text, lambda: "worker-7 (executor 4)", has_worked=has_worked)


def test_a_module_that_is_missing_is_named_with_the_executor_and_the_way_out() -> None:
    found = raised(MISSING)
    assert isinstance(found, ConfigError)
    assert "there is no module 'elsewhere' on worker-7 (executor 4)" in str(found)
    assert "job.application.path" in str(found)


def test_a_module_that_raises_when_it_is_imported_is_named_and_not_those_that_import_it() -> None:
    found = raised(RAISED_AT_IMPORT)
    assert isinstance(found, ApplicationError)
    assert (
        "cannot be imported on worker-7 (executor 4): RuntimeError: no licence "
        "(/node/app/1/licensed.py, line 5)" in str(found)
    )


@pytest.mark.parametrize("text", [MISSING, RAISED_AT_IMPORT])
def test_a_module_that_is_gone_after_batches_that_went_well_is_looked_for_once_more(text: str) -> None:
    found = raised(text, has_worked=True)
    assert type(found) is JobError
    assert "worker-7 (executor 4)" in str(found)
    assert str(found).endswith("so the container begins again")


def test_what_a_function_raises_for_a_row_begins_with_its_place_and_its_own_words() -> None:
    found = raised(RAISED_BY_A_ROW)
    assert type(found) is JobError
    assert str(found).startswith(
        "a function of the pipeline failed on worker-7 (executor 4): shop.errors.Refused: row 7:\n"
    )
    assert 'using.py", line 11, in seen' in str(found)


def test_an_error_of_spark_itself_or_of_grete_is_no_functions() -> None:
    assert (
        raised('org.apache.spark.SparkException: Job aborted\n  File "a.py", line 1, in <module>\n') is None
    )
    own = "An exception was thrown from the Python worker:\ngrete.errors.StorageFull: no room"
    assert executor_error(own) is not None, "this is asked first"
