"""The border to confluent-kafka: clients with the settings that the log's promises need, its errors translated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from grete.clock import Clock
from grete.config.kafka_tuning import KafkaTuning
from grete.errors import ConfigError, LogError, LogUnreachable, MissingExtra
from grete.kafka.login import SettingsOrigin
from grete.kafka.outage import broker_log
from grete.kafka.settings import KafkaLogSettings

try:
    from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka.admin import AdminClient, OffsetSpec

    from grete.kafka.refusal import Refusals
except ImportError as error:
    raise MissingExtra("confluent_kafka", "kafka") from error

_OVERHEAD_BYTES = 512
"""What a record batch needs beside keys, values and headers: 61 bytes for the batch, up to 21 a record."""
_FETCH_KB = 32 * 1024
_RETRY_S = 0.1
_REQUEST_S = 3.0
_LOGIN_STEP_S = 0.25


def reason_of(error: KafkaException) -> KafkaError:
    """What the client says went wrong."""
    reason = error.args[0] if error.args else None
    return reason if isinstance(reason, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the client's exceptions into LogError, once, here. `doing` says what was attempted and on what.

    Raises:
        LogError: with the broker's or client's own words, and the way out where there is a usual one.
    """
    try:
        yield
    except KafkaException as error:
        reason = reason_of(error)
        kind = LogUnreachable if is_temporary(reason) else LogError
        raise kind(f"{doing}: {describe(reason)}") from error


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


_STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH)
"""The admin client knows an older leader than the broker, and does not look for the new one by itself."""
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
_NEW_S = 3.0
"""The leader of a partition that was just made hears of it last, and until then says that there is none."""
_TEMPORARY = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._NOENT,  # no partition leader known, as while brokers come back
        KafkaError.LEADER_NOT_AVAILABLE,
        *_STALE,
        KafkaError.NOT_LEADER_FOR_PARTITION,  # also a leader that does not know yet that it is one
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def is_temporary(reason: KafkaError) -> bool:
    """Whether the same request may work in a moment."""
    return reason.retriable() or reason.code() in _TEMPORARY


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


class KafkaConnection:
    """Makes clients of a system's brokers, all with the settings that reading and writing exactly once needs."""

    def __init__(
        self,
        client: Mapping[str, str],
        timeout_s: float,
        clock: Clock,
        origin: SettingsOrigin | None = None,
        tuning: KafkaTuning | None = None,
    ) -> None:
        """`client` are librdkafka's settings, `origin` says what they are called in the configuration."""
        self._tuning = KafkaTuning() if tuning is None else tuning
        self.timeout_s = timeout_s
        self._clock = clock
        self._servers = client.get("bootstrap.servers", "")
        origin = SettingsOrigin() if origin is None else origin
        self._refusals = Refusals(origin)
        self._log = broker_log(self._servers)
        self._common: dict[str, Any] = {
            "reconnect.backoff.max.ms": 2_000,  # back within 10 s of a broker's return, however long it was away
            "socket.keepalive.enable": True,
            "allow.auto.create.topics": False,
            "logger": self._log,
            "error_cb": self._refusals.note,  # without it clients raise fatal errors inside other callbacks
            **client,
        }
        try:
            self.admin = AdminClient(dict(self._common))
        except KafkaException as error:
            said = reason_of(error).str()
            keys = sorted({origin.key(name) for name in client if name in said})
            way_out = f"; check {', '.join(keys)}" if keys else ""
            raise ConfigError(f"system {origin.system!r}: {said}{way_out}") from error

    @property
    def servers(self) -> str:
        """The brokers as they are configured."""
        return self._servers

    def await_login(self, doing: str, topic: str | None = None) -> None:
        """Wait until a broker has answered, `timeout_s` at most. To be called before anything else is asked.

        Raises:
            LoginRefused: the brokers do not let us in, or we do not trust them: known within seconds.
            LogError: no answer; with what the client said last.
        """
        never, deadline_s = threading.Event(), self._clock.monotonic_s() + self.timeout_s
        while True:
            try:
                self.admin.list_topics(topic, timeout=_LOGIN_STEP_S)
            except KafkaException as error:
                self.admin.poll(0)
                self._refusals.check()
                if self._clock.monotonic_s() >= deadline_s:
                    said = f"{describe(reason_of(error))}{self._refusals.last_words()}"
                    raise LogUnreachable(f"{doing}: {said}") from error
            else:
                self._log.answered()
                return
            self._clock.wait(never, _RETRY_S)

    def new_consumer(
        self, doing: str, more: Mapping[str, Any], tunable: Mapping[str, Any] | None = None
    ) -> Consumer:
        """One that reads what is committed, joins no group and says so when an offset is not there.

        `tunable` is what the configuration may say otherwise; without it the configuration tunes nothing.
        """
        fixed = {
            "group.id": "grete-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
        }
        with translated(doing):
            tuned = {} if tunable is None else {**tunable, **self._tuning.consumer}
            return Consumer({**self._common, **tuned, **fixed, **more})

    def new_producer(
        self,
        doing: str,
        transactional_id: str,
        more: Mapping[str, Any],
        tunable: Mapping[str, Any] | None = None,
    ) -> Producer:
        """One of a transactional id, not opened yet. `tunable` as for consumers; what is compressed is so anyway."""
        fixed = {"transactional.id": transactional_id, "acks": "all"}
        with translated(doing):
            return Producer({**self._common, **self._tuned(tunable), **fixed, **more})

    def new_sender(
        self, doing: str, more: Mapping[str, Any], tunable: Mapping[str, Any] | None = None
    ) -> Producer:
        """One without transactions. `tunable` as above."""
        with translated(doing):
            return Producer({**self._common, **self._tuned(tunable), "acks": "all", **more})

    def _tuned(self, tunable: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._tuning.log_producer if tunable is None else {**tunable, **self._tuning.producer}

    def answer(self, ask: Callable[[float], Future[Any]]) -> Any:
        """The answer to a request of the admin client; `ask` sends it, with the time that it is given, and may again.

        The client sends it to the node that it holds for the controller, and waits for that one when it has died.

        Raises:
            KafkaException: refused, or no answer for the whole timeout.
        """
        deadline_s, never = self._clock.monotonic_s() + self.timeout_s, threading.Event()
        wait_s = min(self.timeout_s, _REQUEST_S)
        while True:
            try:
                found = done(ask(wait_s), wait_s + 1)
                self._log.answered()
                return found
            except KafkaException as error:
                if not is_temporary(reason_of(error)) or self._clock.monotonic_s() >= deadline_s:
                    raise
            self.learn_leaders()
            self._clock.wait(never, _RETRY_S)

    def ends(self, partitions: Sequence[TopicPartition], *, is_stable: bool) -> dict[TopicPartition, int]:
        """The offset after the last one of each; with `is_stable` only as far as no transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        return self.known_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), is_stable=is_stable)

    def known_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, is_stable: bool
    ) -> dict[TopicPartition, int]:
        """As `list_offsets`, of partitions that all have a leader who knows.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        deadline_s, never = self._clock.monotonic_s() + self.timeout_s, threading.Event()
        while True:
            found = self.list_offsets(wanted, is_stable=is_stable)
            unknown = sorted(where.partition for where, offset in found.items() if offset < 0)
            if not unknown:
                return found
            # no leader, or one that has just begun and does not know yet: said without an error
            if self._clock.monotonic_s() >= deadline_s:
                which = ", ".join(map(str, unknown))
                raise KafkaException(KafkaError(KafkaError._NOENT, f"nobody answers for partition {which}"))
            self.learn_leaders()
            self._clock.wait(never, _RETRY_S)

    def offset_at(self, where: TopicPartition, timestamp_ms: int) -> int:
        """The first offset whose record is of that time or later; the end, as of the call, when there is none.

        "None" counts when the partition has a leader: without one, the answer is the same.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        wanted = {where: OffsetSpec.for_timestamp(timestamp_ms)}
        found = self.list_offsets(wanted, is_stable=True)[where]
        if found >= 0:
            return found
        end = self.ends([where], is_stable=True)[where]
        found = self.list_offsets(wanted, is_stable=True)[where]
        return found if found >= 0 else end

    def list_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, is_stable: bool
    ) -> dict[TopicPartition, int]:
        """What the brokers answer for each partition; with `is_stable`, ends only as far as no transaction is open.

        Below zero: there is no such offset, or nobody answers for the partition: it has no leader, or the client asks
        one that has died (see `learn_leaders`).

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        deadline_s, never = self._clock.monotonic_s() + self.timeout_s, threading.Event()
        wait_s = min(self.timeout_s, _REQUEST_S)  # a dead leader does not answer: ask who leads now
        new_until_s = self._clock.monotonic_s() + _NEW_S
        while True:
            futures = self.admin.list_offsets(dict(wanted), isolation_level=level, request_timeout=wait_s)
            try:
                found = {where: int(done(futures[where], wait_s + 1).offset) for where in wanted}
                self._log.answered()
                return found
            except KafkaException as error:
                is_new = reason_of(error).code() in _NOT_THERE and self._clock.monotonic_s() < new_until_s
                if not (is_new or is_temporary(reason_of(error))) or self._clock.monotonic_s() >= deadline_s:
                    raise
                if reason_of(error).code() in _STALE:
                    self.learn_leaders()
            self._clock.wait(never, _RETRY_S)

    def learn_leaders(self) -> None:
        """Ask for the metadata of every topic, which the client keeps; without an answer it is asked again.

        The client goes on asking a leader or controller that has died until it does so by itself, every five minutes.
        """
        with suppress(KafkaException):
            self.admin.list_topics(timeout=min(self.timeout_s, _REQUEST_S))


def delete_topic(connection: KafkaConnection, name: str) -> None:
    """Remove a topic; one that is not there is fine.

    Raises:
        KafkaException: refused, or no answer.
    """
    wait_s = connection.timeout_s
    try:
        done(connection.admin.delete_topics([name], request_timeout=wait_s)[name], wait_s + 1)
    except KafkaException as error:
        if reason_of(error).code() not in _NOT_THERE:
            raise


class KafkaClients(KafkaConnection):
    """Makes clients for one log's topic. `partition(offset)` is its only partition."""

    def __init__(self, topic: str, settings: KafkaLogSettings, clock: Clock) -> None:
        super().__init__(settings.client, settings.timeout_s, clock, settings.origin, settings.tuning)
        self.topic = topic
        self.settings = settings

    def log_in(self) -> None:
        """See `await_login`."""
        self.await_login(f"opening topic {self.topic}", self.topic)

    def partition(self, offset: int) -> TopicPartition:
        """The topic's partition at an offset."""
        return TopicPartition(self.topic, 0, offset)

    def reader(self, *, fetch_wait_ms: int) -> Consumer:
        """Committed records only, no group, an event at the end. It waits `fetch_wait_ms` there for more."""
        return self._consumer(
            {
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": fetch_wait_ms,
                "fetch.error.backoff.ms": 100,
                "queued.max.messages.kbytes": _FETCH_KB,
                "fetch.max.bytes": max(_FETCH_KB * 1024, 2 * self.settings.max_message_bytes),
                "max.partition.fetch.bytes": max(8 << 20, self.settings.max_message_bytes),
                "receive.message.max.bytes": 2 * max(_FETCH_KB * 1024, 2 * self.settings.max_message_bytes),
            }
        )

    def group(self, name: str) -> Consumer:
        """For the offsets of a group that nobody joins. They wait for open transactions of theirs."""
        return self._consumer({"group.id": name})

    def _consumer(self, more: dict[str, Any]) -> Consumer:
        doing = f"making a consumer of {self.topic}"
        consumer = self.new_consumer(doing, more)
        with translated(doing):
            # Asked for at once, metadata is there in milliseconds; else the client looks for it every 500 ms.
            consumer.list_topics(self.topic, timeout=self.settings.timeout_s)
        return consumer

    def producer(self, transactional_id: str) -> Producer:
        """One whose batches grow until they are flushed, so that an append is one batch while it fits."""
        largest = self.settings.max_message_bytes
        doing = f"making a producer of {self.topic}"
        producer = self.new_producer(
            doing,
            transactional_id,
            {
                "transaction.timeout.ms": round(self.settings.transaction_timeout_s * 1000),
                "linger.ms": round(self.settings.transaction_timeout_s * 500),
                "batch.size": max(largest - _OVERHEAD_BYTES, 1),
                "batch.num.messages": 1_000_000,
                "message.max.bytes": largest + _OVERHEAD_BYTES,
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2_147_483_647,
            },
        )
        with translated(doing):
            producer.list_topics(self.topic, timeout=self.settings.timeout_s)
        return producer

    def end(self, *, is_stable: bool) -> int:
        """The offset after the last one; with `is_stable` only as far as no transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout.
        """
        where = self.partition(0)
        return self.ends([where], is_stable=is_stable)[where]
