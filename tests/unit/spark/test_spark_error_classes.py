"""Spark's errors that another start would meet again: the whole of the table, and what is not in it."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from grete.errors import ApplicationError, LoginRefused, StateDoesNotFit
from grete.model.ending import ExitCode, exit_code
from grete.spark.failures.error_classes import CLASSES, EXCEPTIONS, ErrorKind, refused
from grete.spark.failures.translation import failed

CHECKPOINT = "/home/of job/lineages/1/spark"
KINDS = {
    ErrorKind.DAMAGED: (StateDoesNotFit, f"Bring {CHECKPOINT} back whole"),
    ErrorKind.CHANGED: (StateDoesNotFit, "Run it with build as it was"),
    ErrorKind.WRONG_CODE: (ApplicationError, "Mend build"),
    ErrorKind.NO_CLASS: (ApplicationError, "spark.jars.packages"),
    ErrorKind.REFUSED: (LoginRefused, "Check user, password, certificates and rights"),
}
MAY_PASS = {
    "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.UNCATEGORIZED",
    "CANNOT_LOAD_STATE_STORE.FAILED_TO_GET_CHANGELOG_WRITER",
    "CANNOT_LOAD_STATE_STORE.HDFS_STORE_PROVIDER_OUT_OF_MEMORY",
    "CANNOT_LOAD_STATE_STORE.INVALID_CHANGE_LOG_WRITER_VERSION",
    "CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY",
    "CANNOT_LOAD_STATE_STORE.SNAPSHOT_PARTITION_ID_NOT_FOUND",
    "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED",  # the exception behind it decides
    "CANNOT_LOAD_STATE_STORE.UNEXPECTED_VERSION",
    "CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR",
}
"""Of loading a checkpoint: what has no cause in its files."""


@pytest.fixture(scope="module")
def conditions() -> dict[str, Any]:
    """Spark's own list of its error classes."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as opened:
        found: dict[str, Any] = json.loads(opened.read("error/error-conditions.json"))
    return found


def test_every_class_of_the_table_is_one_of_sparks(conditions: dict[str, Any]) -> None:
    for name in CLASSES:
        top, _, below = name.partition(".")
        assert top in conditions, name
        assert not below or below in conditions[top]["subClass"], name


def test_every_way_in_which_sparks_checkpoint_is_not_loaded_is_decided(conditions: dict[str, Any]) -> None:
    ways = {
        f"{top}.{below}"
        for top in ("CANNOT_LOAD_STATE_STORE", "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER")
        for below in conditions[top]["subClass"]
    }
    assert ways - set(CLASSES) == MAY_PASS
    changed = {one for one in conditions if re.search(r"^STATE_STORE_.*(SCHEMA|_CHECKSUM)", one)}
    assert changed <= set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_each_error_class_ends_the_job_with_what_is_wrong_and_the_way_out(name: str) -> None:
    said = f"terminated with exception: [{name}] Of file:{CHECKPOINT}/state/0/0/8.delta. SQLSTATE: 58030"
    _is_ended(refused(said, CHECKPOINT), CLASSES[name].kind, name)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_each_exception_of_javas_ends_the_job_with_what_is_wrong_and_the_way_out(name: str) -> None:
    said = f"An error.\n: org.apache.spark.SparkException: no\n\tat a.B.c\nCaused by: {name}: why\n\tat d.E\n"
    _is_ended(refused(said, CHECKPOINT), EXCEPTIONS[name].kind, name.rpartition(".")[2])


def _is_ended(error: Exception | None, kind: ErrorKind, name: str) -> None:
    made, way_out = KINDS[kind]
    assert type(error) is made
    assert exit_code(error) == ExitCode.UNUSABLE
    assert way_out in str(error)
    assert name in str(error)
    assert ("grete run --set job.lineage.state=discard" in str(error)) == (made is StateDoesNotFit)


_OF = "\tat org.apache.spark.sql.execution.streaming"
STATE = f"{_OF}.state.HDFSBackedStateStoreProvider.updateFromDeltaFile(H.scala:1)\n"
LOG = f"\tat com.fasterxml.jackson.J.x(J.java:1)\n{_OF}.checkpointing.CommitMetadata$.apply(C.scala:1)\n"
WORKER = f"\tat java.io.D.readInt(D.java:1)\n\tat org.apache.spark.api.python.PythonRunner.read(P:1)\n{STATE}"


@pytest.mark.parametrize(
    ("thrown", "is_damage"),
    [
        (f"java.io.EOFException: Stream ended prematurely\n\tat net.jpountz.L.x(L.java:1)\n{STATE}", True),
        (f"java.io.EOFException\n{STATE}", True),
        (f"java.io.IOException: Stream is corrupted\n{STATE}", True),
        (f"org.apache.hadoop.fs.ChecksumException: Checksum error: file:/a b/8.delta at 0\n{STATE}", True),
        (
            f"com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end\n at [Source: x; line: 1]\n{LOG}",
            True,
        ),
        (f"java.nio.charset.MalformedInputException: Input length = 1\n{LOG}", True),
        (f"java.io.EOFException\n{WORKER}", False),  # a Python worker that has crashed
        (f"java.io.EOFException: End of File Exception between local host is: a\n{STATE}", False),
        (f"java.io.IOException: All datanodes are bad\n{STATE}", False),
        (f"java.net.ConnectException: Connection refused\n{STATE}", False),
    ],
)
def test_a_file_of_the_lineage_that_cannot_be_read_is_told_from_what_may_pass(
    thrown: str, is_damage: bool
) -> None:
    text = (
        f": org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] No.\nCaused by: {thrown}"
    )
    assert isinstance(refused(text, CHECKPOINT), StateDoesNotFit) == is_damage


def test_a_class_that_was_there_before_may_be_there_again() -> None:
    gone = ": java.lang.ClassNotFoundException: io.x.Y\n\tat a.B.c(B.java:1)\n"
    assert refused(gone) is not None
    assert refused(gone, has_worked=True) is None
    unset = ": java.lang.NoClassDefFoundError: Could not initialize class io.x.Y\n\tat a.B.c(B.java:1)\n"
    assert refused(unset) is None


def test_a_login_that_is_refused_ends_the_job_unless_it_has_worked_before() -> None:
    error = LoginRefused("the brokers do not let us in")
    assert exit_code(error) == ExitCode.UNUSABLE
    assert exit_code(error, has_worked=True) == ExitCode.FAILED, "the next start reads its secrets again"


def test_no_message_is_cut_in_the_middle_of_a_path() -> None:
    path = "/a/path/of/some/length/" * 10
    said = str(failed(RuntimeError(f"{path} " * 40)))
    assert set(said.removeprefix("Spark failed: ").partition(" ...")[0].split()) == {path}
    assert said.endswith("characters)")
