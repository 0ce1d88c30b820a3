"""What Spark's errors mean that another start would meet again: the job ends with them at the first time.

The table has Spark's error classes and, where Spark has none, the exceptions of Java behind it. What is not in it may
pass, and the container is started again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from grete.errors import ApplicationError, GreteError, LoginRefused, StateDoesNotFit
from grete.spark.failures.state_changes import changed_state
from grete.text_logs import shortened

GIVE_UP = (
    "grete run --set job.lineage.state=discard goes on from the checkpointed offsets with empty state: no record "
    "comes twice, and what windows, counts, joins and dropDuplicates had of earlier records is lost"
)


def bring_back(checkpoint: str) -> str:
    """The way out of a lineage that is damaged, without loss."""
    return (
        f"Bring {checkpoint or 'the folder of the lineage'} back whole, as it was when the job ended, from a backup "
        f"or a snapshot of its disk, also files whose names begin with a dot, and run the job again"
    )


class ErrorKind(Enum):
    """What is wrong, and so the way out."""

    DAMAGED = "a lineage has lost files, or has others than Spark has written"
    CHANGED = "the state is of another plan"
    WRONG_CODE = "the pipeline uses Spark in a way that it does not allow"
    NO_CLASS = "a class of Java's is not there"
    REFUSED = "a login or its rights"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A row of the table: what is wrong, in words; of a CHANGED one Spark's own say more."""

    kind: ErrorKind
    wrong: str


def _rows(kind: ErrorKind, rows: Mapping[str, str]) -> dict[str, Meaning]:
    return {name: Meaning(kind, wrong) for name, wrong in rows.items()}


_STATE = "CANNOT_LOAD_STATE_STORE"
_READ = f"{_STATE}.CANNOT_READ"
CLASSES: Mapping[str, Meaning] = {
    **_rows(
        ErrorKind.DAMAGED,
        {
            "STREAMING_CHECKPOINT_MISSING_METADATA_FILE": "the file metadata is not there",
            "BATCH_METADATA_NOT_FOUND": "the record of a batch is not there",
            "INVALID_LOG_VERSION": "the record of a batch is of no version that is known",
            "MALFORMED_LOG_FILE": "the record of a batch cannot be read",
            "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY": "the files of its state are not there",
            f"{_READ}_DELTA_FILE_NOT_EXISTS": "a file of its state is not there",
            f"{_READ}_MISSING_SNAPSHOT_FILE": "a file of its state is not there",
            f"{_READ}_STREAMING_STATE_FILE": "a file of its state is not there",
            f"{_STATE}.CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT": "a file of its state is not there",
            f"{_STATE}.AUTO_SNAPSHOT_REPAIR_FAILED": "a file of its state cannot be read",
            f"{_READ}_CHECKPOINT": "a file of its state cannot be read",
            f"{_READ}_DELTA_FILE_KEY_SIZE": "a file of its state cannot be read",
            f"{_READ}_SNAPSHOT_FILE_KEY_SIZE": "a file of its state cannot be read",
            f"{_READ}_SNAPSHOT_FILE_VALUE_SIZE": "a file of its state cannot be read",
            f"{_STATE}.UNEXPECTED_FILE_SIZE": "a file of its state is not as long as it was",
            f"{_STATE}.INVALID_CHECKPOINT_LINEAGE": "files of its state do not belong together",
            "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED": "a file is not as it was",
            "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED": "a row of its state is not as it was",
            "STREAM_STREAM_JOIN_INCONSISTENT_STATE": "files of its state do not belong together",
        },
    ),
    **_rows(
        ErrorKind.CHANGED,
        {
            "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": "keys of its state have other columns",
            "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": "values of its state have other columns",
            "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE": "a variable of its state has other columns",
            "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION": "values of its state have other columns",
            "STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED": "its state has had too many schemas",
            "STATE_STORE_STATE_SCHEMA_FILES_THRESHOLD_EXCEEDED": "its state has had too many schemas",
            "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE": "keys of its state have another form",
            "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE": "values of its state have another form",
            f"{_STATE}.KEY_ROW_FORMAT_VALIDATION_FAILURE": "keys of its state have another form",
            f"{_STATE}.VALUE_ROW_FORMAT_VALIDATION_FAILURE": "values of its state have another form",
            f"{_STATE}.INVALID_CHANGE_LOG_READER_VERSION": "a later Spark has written its state",
            "STATE_STORE_INVALID_CONFIG_AFTER_RESTART": "its state was begun with another setting",
            "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE": "a variable of its state is of another type",
            "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA": "other operators keep state",
        },
    ),
    **_rows(
        ErrorKind.WRONG_CODE,
        {
            "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE": "a variable is asked too soon",
            "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE": "its time mode has no such call",
            "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED": "two variables have one name",
            "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL": "its time mode has no TTL",
            "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE": "a TTL is not above zero",
            "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE": "there is no such time mode",
            "STATE_STORE_INVALID_PROVIDER": "spark.sql.streaming.stateStore.providerClass names no store of state",
            "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED": (
                "the store of state has no spark.sql.streaming.stateStore.checkpointFormatVersion above 1"
            ),
        },
    ),
    **_rows(
        ErrorKind.NO_CLASS,
        {
            "DATA_SOURCE_NOT_FOUND": "there is no such format",
            "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.ERROR_LOADING_CLASS": "a class is not there",
        },
    ),
}
"""Spark's error classes, with their subclass where that decides."""

EXCEPTIONS: Mapping[str, Meaning] = {
    **_rows(
        ErrorKind.NO_CLASS,
        {
            "java.lang.ClassNotFoundException": "a class is not there",
            "java.lang.NoClassDefFoundError": "a class is not there",
        },
    ),
    **_rows(
        ErrorKind.REFUSED,
        {
            "org.apache.kafka.common.errors.SaslAuthenticationException": "the brokers do not let us in",
            "org.apache.kafka.common.errors.SslAuthenticationException": "the brokers do not let us in",
            "org.apache.kafka.common.errors.TopicAuthorizationException": "a topic may not be used",
            "org.apache.kafka.common.errors.GroupAuthorizationException": "a group may not be used",
            "org.apache.kafka.common.errors.ClusterAuthorizationException": "the brokers may not be used so",
            "org.apache.kafka.common.errors.TransactionalIdAuthorizationException": "a transaction may not be begun",
            "org.apache.hadoop.security.AccessControlException": "a file may not be used",
        },
    ),
}
"""Exceptions of Java's that decide where no error class does."""

_UNREADABLE = (
    "java.io.EOFException",
    "java.io.IOException: Stream is corrupted",
    "java.nio.charset.MalformedInputException",
    "com.fasterxml.jackson.core.",
    "com.github.luben.zstd.ZstdIOException",
    "org.apache.hadoop.fs.ChecksumException",
)
_BROKEN_OFF = "End of File Exception between"
"""A connection to HDFS, whose exception has the name of a file's."""
_NOT_AGAIN = "Could not initialize class"
"""Said of a class that is there, after an error of another kind."""
_STREAMING = "org.apache.spark.sql.execution.streaming."
_READERS = (f"{_STREAMING}state.", f"{_STREAMING}checkpointing.", f"{_STREAMING}runtime.StreamMetadata")
"""What of Spark reads files of a lineage. Of other readers, as that of a Python worker's rows, the same may pass."""
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\] *([^\n]*)")
_THROWN = re.compile(
    r"^(?:Caused by: |: )?((?:[a-z]\w*\.)+[A-Z][\w$]*)(?:: ([^\n]*))?\n((?:\s+at [^\n]*\n?)*)", re.MULTILINE
)
"""An exception of Java's, what it says, and its frames."""
_FRAME = re.compile(r"\bat (org\.apache\.spark\.[^\n]*)")
_LONGEST = 600


def refused(text: str, checkpoint: str = "", *, has_worked: bool = False) -> GreteError | None:
    """The error behind an exception's text, with its traces, where another start would meet it again; else None.

    `checkpoint` is the folder of the lineage. A class that is not there may be there again where batches went well
    before (`has_worked`).
    """
    for name, meaning, said in _known(text):
        if not (has_worked and meaning.kind is ErrorKind.NO_CLASS):
            return _error(name, meaning, said, text, checkpoint)
    return None


def wrong_with(text: str) -> str:
    """What is wrong by an exception's text, in a few words; "" of one that is not in the table."""
    for name, meaning, said in _known(text):
        return (
            changed_state(text) or f"{meaning.wrong} ({name}: {shortened(' '.join(said.split()), _LONGEST)})"
        )
    return ""


def _known(text: str) -> Iterator[tuple[str, Meaning, str]]:
    """What the table has of it: error classes, exceptions, and a file of a lineage that cannot be read."""
    for name, said in _CLASS.findall(text):
        if name in CLASSES:
            yield name, CLASSES[name], said
    for name, said, frames in _THROWN.findall(text):
        short = name.rpartition(".")[2]
        if name in EXCEPTIONS and not said.startswith(_NOT_AGAIN):
            yield short, EXCEPTIONS[name], said
        by = _FRAME.search(frames)
        is_unreadable = f"{name}: {said}".startswith(_UNREADABLE) and not said.startswith(_BROKEN_OFF)
        if is_unreadable and by and by[1].startswith(_READERS):
            yield short, Meaning(ErrorKind.DAMAGED, "a file of it cannot be read"), said


def _error(name: str, meaning: Meaning, said: str, text: str, checkpoint: str) -> GreteError:
    words = shortened(" ".join(said.split()), _LONGEST)
    spark = f"{name}: {words}" if words else name
    match meaning.kind:
        case ErrorKind.DAMAGED:
            change = changed_state(text) or meaning.wrong
            return StateDoesNotFit(
                f"Spark cannot continue this pipeline's checkpoint: {change} ({spark}). {bring_back(checkpoint)}. "
                f"Or give its state up: {GIVE_UP}"
            )
        case ErrorKind.CHANGED:
            change = changed_state(text) or f"{meaning.wrong}: {words}"
            return StateDoesNotFit(
                f"the state that this pipeline has in Spark's checkpoint does not fit what build makes now: {change} "
                f"({name}). Run it with build as it was, or give that state up: {GIVE_UP}"
            )
        case ErrorKind.WRONG_CODE:
            return ApplicationError(f"Spark refuses the pipeline: {meaning.wrong} ({spark}). Mend build")
        case ErrorKind.NO_CLASS:
            return ApplicationError(
                f"{meaning.wrong} ({spark}). Bring its jar by spark.jars, or its package by spark.jars.packages, or "
                f"mend the name"
            )
        case ErrorKind.REFUSED:
            return LoginRefused(
                f"{meaning.wrong} ({spark}). Check user, password, certificates and rights of the systems that the "
                f"pipeline reads and writes"
            )
