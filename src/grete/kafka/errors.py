"""The errors of confluent-kafka in grete's words: which may pass, which are final, and the usual way out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from grete.errors import LogError, LogUnreachable, StreamError, StreamUnreachable
from grete.kafka.library import KafkaError, KafkaException


def reason_of(error: KafkaException) -> KafkaError:
    """The client's reason for the error.

    The client may lose count of who holds the exception of a fatal one, which then stays for ever (once in fifty
    producers that were fenced off), and by its traceback would the frames of all callers with all clients they use.
    """
    reason = error.args[0] if error.args else None
    if not isinstance(reason, KafkaError):
        return KafkaError(KafkaError._FAIL, str(error))
    if reason.fatal() or reason.code() == KafkaError._FATAL:
        error.__traceback__ = error.__context__ = None
    return reason


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the client's exceptions into LogError, once, here. `doing` is what was attempted and on what.

    Raises:
        LogError: with the broker's or client's own words, and the way out where there is a usual one.
    """
    try:
        yield
    except KafkaException as error:
        reason = reason_of(error)
        kind = LogUnreachable if is_temporary(reason) else LogError
        raise kind(f"{doing}: {describe(reason)}") from error


@contextmanager
def stream_errors(doing: str) -> Iterator[None]:
    """As `translated`, into errors of streams.

    Raises:
        StreamUnreachable: no answer; the same may work in a moment.
        StreamError: refused.
    """
    try:
        yield
    except KafkaException as error:
        kind = StreamUnreachable if is_temporary(reason_of(error)) else StreamError
        raise kind(f"{doing}: {describe(reason_of(error))}") from error


_WAYS_OUT = {
    KafkaError._TRANSPORT: "no broker can be reached; check that the brokers run and bootstrap.servers names them",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached; check that the brokers run",
    KafkaError._TIMED_OUT: "no answer in time; check that the brokers run and can be reached",
    KafkaError._TIMED_OUT_QUEUE: "no answer in time; check that the brokers run and can be reached",
    KafkaError._MSG_TIMED_OUT: "no broker took it in time; check that the brokers run and can be reached",
    KafkaError._NOENT: "no broker leads its partition; check that the brokers run and that the topic exists",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not do that with the topic; grant Read, Write, Describe, "
    "Create and DescribeConfigs on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant Read on consumer groups whose names begin with grete-",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant Write on transactional ids that begin with grete-",
}


_FINAL = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._AUTHENTICATION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)


def is_final(reason: KafkaError) -> bool:
    """Whether trying again cannot help."""
    return reason.code() in _FINAL


STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT)
"""The admin client has an older leader than the broker or, as while brokers come back, none, and does not always
refresh it by itself: a client had none for all its timeout of a topic that others read meanwhile."""
NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
_TEMPORARY = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.LEADER_NOT_AVAILABLE,
        *STALE,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # also a leader that does not know yet that it is one
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


_STARTING = "brokers are currently fenced"


def is_temporary(reason: KafkaError) -> bool:
    """Whether the same request may work in a moment.

    A broker that has just started answers before it may hold topics, and says then that it is too few for any copies:
    of that code only the text tells, and a job that was submitted in this second ended.
    """
    is_starting = reason.code() == KafkaError.INVALID_REPLICATION_FACTOR and _STARTING in reason.str()
    return reason.retriable() or reason.code() in _TEMPORARY or is_starting


def describe(reason: KafkaError) -> str:
    """A reason with its name and the way out."""
    way_out = _WAYS_OUT.get(reason.code())
    return f"{reason.str()} ({reason.name()})" + (f": {way_out}" if way_out else "")


def done(future: Future[Any], timeout_s: float) -> Any:
    """The result of one of the admin client's futures.

    Raises:
        KafkaException: the broker refused, or did not answer in time.
    """
    try:
        return future.result(timeout_s)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False)) from error
    finally:
        # It holds its error, whose traceback holds this frame and those of all callers with the clients that they
        # use: closed ones lived on, each with four threads that look for their brokers, until the next full
        # collection. A worker of the tests had 270 of them.
        del future
