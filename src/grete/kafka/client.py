"""Clients of confluent-kafka with the settings that reading and writing exactly once needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from grete.clock import Clock, Deadline
from grete.config.kafka_tuning import KafkaTuning
from grete.errors import ConfigError, LogUnreachable
from grete.kafka.errors import (
    NOT_THERE,
    STALE,
    describe,
    done,
    is_temporary,
    reason_of,
    translated,
)
from grete.kafka.library import (
    AdminClient,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from grete.kafka.login import SettingsOrigin
from grete.kafka.outage import broker_log
from grete.kafka.refusal import Refusals
from grete.kafka.settings import KafkaLogSettings

_NEW_S = 3.0
"""The leader of a new partition gets its metadata last, and until then answers that there is none."""
_REQUEST_S = 3.0
_LOGIN_STEP_S = 0.25
_FEW = 6
"""Brokers to all of which every client connects at once."""
_few: set[str] = set()
"""The addresses behind which there were so few when they were asked last."""
_NO_PROVIDER = "No provider for SASL mechanism"
"""librdkafka's word for a mechanism that it was built without: GSSAPI in confluent-kafka's wheels."""


Partition = tuple[str, int]
"""A topic's name and the number of its partition."""
Offsets = tuple[int, int]
"""The oldest and the upcoming offset."""


def _way_out(said: str, client: Mapping[str, str], origin: SettingsOrigin) -> str:
    """What to do about settings of which no client can be made."""
    if _NO_PROVIDER in said:
        return (
            f". Set {origin.key('sasl.mechanism')} to another one that the brokers know: PLAIN, SCRAM-SHA-256 or "
            "SCRAM-SHA-512. For GSSAPI, which is what clients take where none is set, confluent-kafka has to be "
            "built against a librdkafka with libsasl2 (pip install --no-binary confluent-kafka)"
        )
    keys = sorted({origin.key(name) for name in client if name in said})
    return f"; check {', '.join(keys)}" if keys else ""


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
        """`client` are librdkafka's settings, `origin` has their names in the configuration."""
        self._tuning = KafkaTuning() if tuning is None else tuning
        self.timeout_s = timeout_s
        self._clock = clock
        self._servers = client.get("bootstrap.servers", "")
        origin = SettingsOrigin() if origin is None else origin
        self._refusals = Refusals(origin)
        self._log = broker_log(self._servers)
        self._common: dict[str, Any] = {
            # A client leaves the address that it was given for the broker's own by connecting again, so the first
            # answer takes half of this: 55 ms of 100, the default, and 15 of 10. A start has twenty clients. Those
            # that connect to every broker at once have it in 3 ms; among many brokers that would be many connections.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 2_000,  # back within 10 s of a broker's return, however long it was away
            "enable.sparse.connections": self._servers not in _few,
            "socket.keepalive.enable": True,
            "allow.auto.create.topics": False,
            "logger": self._log,
            "error_cb": self._refusals.note,  # without it clients raise fatal errors inside other callbacks
            **client,
        }
        try:
            self._admin: AdminClient | None = AdminClient(dict(self._common))
        except KafkaException as error:
            said = reason_of(error).str()
            raise ConfigError(f"system {origin.system!r}: {said}{_way_out(said, client, origin)}") from error

    @classmethod
    def of(cls, settings: KafkaLogSettings, clock: Clock) -> KafkaConnection:
        """A connection with the settings of a log; it is not bound to the log's topic."""
        return KafkaConnection(settings.client, settings.timeout_s, clock, settings.origin, settings.tuning)

    @property
    def admin(self) -> AdminClient:
        """The client for requests.

        Raises:
            LogUnreachable: the connection is closed.
        """
        if self._admin is None:
            raise LogUnreachable(f"the connection to {self._servers} is closed")
        return self._admin

    def close(self) -> None:
        """Let go of the client for requests; others are their users' to close.

        It has threads and sockets until nothing refers to it, and what uses a connection may be referred to for long:
        by the frames of an error that is kept, or by a request that waits. A coordinator that lived through four
        outages of its brokers had 16 clients more.
        """
        self._admin = None

    @property
    def servers(self) -> str:
        """The brokers as they are configured."""
        return self._servers

    def await_login(self, doing: str, topic: str | None = None) -> None:
        """Wait until a broker has answered, `timeout_s` at most. To be called before any other request.

        Raises:
            LoginRefused: the brokers do not let us in, or we do not trust them: known within seconds.
            LogError: no answer; with the client's last remark.
        """
        deadline = Deadline(self._clock, self.timeout_s)
        while True:
            try:
                known = self.admin.list_topics(topic, timeout=_LOGIN_STEP_S)
            except KafkaException as error:
                self.admin.poll(0)
                self._refusals.check()
                if not deadline.pause():
                    said = f"{describe(reason_of(error))}{self._refusals.last_remark()}"
                    raise LogUnreachable(f"{doing}: {said}") from error
            else:
                self._note_size(len(known.brokers))
                self._log.answered()
                return

    def _note_size(self, brokers: int) -> None:
        (_few.add if brokers <= _FEW else _few.discard)(self._servers)
        self._common["enable.sparse.connections"] = self._servers not in _few

    def new_consumer(
        self, doing: str, more: Mapping[str, Any], tunable: Mapping[str, Any] | None = None
    ) -> Consumer:
        """One that reads what is committed, joins no group and reports an offset that is not there.

        `tunable` is what the configuration may override; without it the configuration tunes nothing.
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
        fixed = {
            "transactional.id": transactional_id,
            "acks": "all",
            # Connect at once. By default the client connects when it is asked for something, and of 80 ids that were
            # opened on an idle broker every sixth waited for its timer of 500 ms, since the connection over which
            # it looked for the coordinator was just being replaced; asking for metadata first did not help.
            "enable.sparse.connections": False,
        }
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
        deadline, wait_s = Deadline(self._clock, self.timeout_s), min(self.timeout_s, _REQUEST_S)
        while True:
            try:
                found = done(ask(wait_s), wait_s + 1)
                self._log.answered()
                return found
            except KafkaException as error:
                if not (is_temporary(reason_of(error)) and deadline.pause()):
                    raise
            self.learn_leaders()

    def ends(self, partitions: Sequence[TopicPartition], *, is_stable: bool) -> dict[TopicPartition, int]:
        """The offset after the last one of each; with `is_stable` only as far as no transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        return self.known_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), is_stable=is_stable)

    def known_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, is_stable: bool
    ) -> dict[TopicPartition, int]:
        """As `list_offsets`, of partitions that all have a leader that can answer.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        deadline = Deadline(self._clock, self.timeout_s)
        while True:
            found = self.list_offsets(wanted, is_stable=is_stable)
            unknown = sorted(where.partition for where, offset in found.items() if offset < 0)
            if not unknown:
                return found
            # no leader, or one that has just begun: reported without an error
            if not deadline.pause():
                which = ", ".join(map(str, unknown))
                raise KafkaException(
                    KafkaError(KafkaError._NOENT, f"no broker answers for partition {which}")
                )
            self.learn_leaders()

    def held(self, topic: str, partitions: Iterable[int]) -> dict[int, Offsets]:
        """(oldest, upcoming) offset of each partition, as far as no transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        oldest = self.known_offsets(dict.fromkeys(asked, OffsetSpec.earliest()), is_stable=True)
        upcoming = self.ends(asked, is_stable=True)
        return {where.partition: (oldest[where], max(upcoming[where], oldest[where])) for where in asked}

    def reachable(self, topic: str, partitions: Iterable[int]) -> dict[int, Offsets]:
        """As `held`, of the partitions that a leader answers for now.

        Raises:
            KafkaException: no answer at all for the whole timeout, or no such partition.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        oldest = self._answered(dict.fromkeys(asked, OffsetSpec.earliest()))
        upcoming = self._answered(dict.fromkeys(oldest, OffsetSpec.latest()))
        found = {w.partition: (oldest[w], max(end, oldest[w])) for w, end in upcoming.items()}
        if len(found) < len(asked):
            self.learn_leaders()  # for the next look
        return found

    def _answered(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        found = self.list_offsets(wanted, is_stable=True) if wanted else {}
        return {where: offset for where, offset in found.items() if offset >= 0}

    def with_open_transactions(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those of the partitions in which a transaction is open.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        asked = [TopicPartition(*where) for where in partitions]
        stable = self.ends(asked, is_stable=True)
        ends = self.ends(asked, is_stable=False)
        return [(str(where.topic), where.partition) for where in asked if stable[where] < ends[where]]

    def await_stable(
        self, wanted: Mapping[Partition, int], timeout_s: float, check: Callable[[int], None] | None = None
    ) -> str:
        """Wait until readers get to these offsets. Returns why they do not at the end, "" if they do.

        `check` is called with each end that was found.
        """
        asked = {TopicPartition(*where): offset for where, offset in wanted.items()}
        deadline = Deadline(self._clock, timeout_s, pauses_s=(0.001, 0.05))
        while True:
            try:
                found = self.ends(list(asked), is_stable=True)
                if check is not None:
                    for end in found.values():
                        check(end)
                if all(found[where] >= offset for where, offset in asked.items()):
                    return ""
                reason = "a transaction stays open"
            except KafkaException as error:
                reason = describe(reason_of(error))
            if not deadline.pause():
                return reason

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset whose record is of that time or later; the end, as of the call, when there is none.

        "None" counts when the partition has a leader: without one, the answer is the same.

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        where = TopicPartition(topic, partition)
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
        """The brokers' answer for each partition; with `is_stable`, ends only as far as no transaction is open.

        Below zero: there is no such offset, or no broker answers for the partition: it has no leader, or the client
        asks one that has died (see `learn_leaders`).

        Raises:
            KafkaException: no answer for the whole timeout, or no such partition.
        """
        level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        deadline, new = Deadline(self._clock, self.timeout_s), Deadline(self._clock, _NEW_S)
        wait_s = min(self.timeout_s, _REQUEST_S)  # a dead leader does not answer: ask who leads now
        while True:
            futures = self.admin.list_offsets(dict(wanted), isolation_level=level, request_timeout=wait_s)
            try:
                found = {where: int(done(futures[where], wait_s + 1).offset) for where in wanted}
                self._log.answered()
                return found
            except KafkaException as error:
                may_pass = is_temporary(reason_of(error))
                may_come = reason_of(error).code() in NOT_THERE and not new.is_over
                if not ((may_pass or may_come) and deadline.pause()):
                    raise
                if reason_of(error).code() in STALE:
                    self.learn_leaders()

    def learn_leaders(self) -> None:
        """Ask for the metadata of every topic, which the client keeps; without an answer it is asked again.

        The client goes on asking a leader or controller that has died until it does so by itself, every five minutes.
        """
        with suppress(KafkaException):
            self.admin.list_topics(timeout=min(self.timeout_s, _REQUEST_S))
