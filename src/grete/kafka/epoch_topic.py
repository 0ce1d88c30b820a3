"""Where an epoch is kept: as the text beside offset 0 of a topic without records.

So tools show a lag of 0 for its group. An older version of grete keeps it as an offset of the log's own topic, where
tools take the log's end less the epoch for a lag. There it is written besides for as long as such a version may be
about, marked as a copy.
"""

from __future__ import annotations

import logging
import re

from grete.clock import Clock, Deadline
from grete.kafka.errors import describe, is_temporary, reason_of
from grete.kafka.library import KafkaError, KafkaException, TopicPartition
from grete.kafka.log_clients import KafkaClients
from grete.kafka.producer import not_written
from grete.kafka.topics import GONE, TopicSettings, create_topic, topic_info

EPOCHS = "__grete_epochs"
_log = logging.getLogger(__name__)
_EPOCH = re.compile(r"epoch=([0-9]{1,19})")
_COPY = re.compile(rf"copy of {EPOCHS}, since=([0-9]{{1,15}})")
_PAUSES_S = (0.01, 0.1)


def place_of_epochs() -> TopicPartition:
    """The partition, to be asked for."""
    return TopicPartition(EPOCHS, 0)


def epoch_place(epoch: int) -> TopicPartition:
    """The partition with an epoch, to be committed."""
    return TopicPartition(EPOCHS, 0, 0, f"epoch={epoch}")


def epoch_in(found: TopicPartition) -> int | None:
    """The epoch that is committed there; None when there is none, or only what somebody else has set it to."""
    written = _EPOCH.fullmatch(found.metadata or "") if found.offset >= 0 else None
    return int(written[1]) if written else None


def copy_place(topic: str, epoch: int, since_ms: int) -> TopicPartition:
    """The place where an older version reads the epoch of a log, to be committed. See `copied_since`."""
    return TopicPartition(topic, 0, epoch, f"copy of {EPOCHS}, since={since_ms}")


def copied_since(found: TopicPartition) -> int | None:
    """Since when nobody but this version has written there; None when the last to write was an older one."""
    written = _COPY.fullmatch(found.metadata or "")
    return int(written[1]) if written else None


class EpochTopic:
    """Whether epochs can be written to the topic, which is made when it is not there."""

    def __init__(self, clients: KafkaClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._is_usable: bool | None = None

    def is_usable(self) -> bool:
        """False where brokers refuse it, as to a user without rights: then an epoch stays in the topic of its log.

        Raises:
            NotWritten: no answer in time.
        """
        if self._is_usable is None:
            self._is_usable = self._is_there()
        return self._is_usable

    def forget(self) -> None:
        """Look again at the next question, as when brokers know the topic no more."""
        self._is_usable = None

    def refused(self, reason: KafkaError) -> bool:
        """Do without the topic, and say so. Returns False, as `is_usable` does from now on."""
        _log.info(
            "the epochs of topic %s stay there, so tools show a lag for their groups that means nothing: topic %s "
            "cannot be used (%s). Grant the user Read, Create and Describe on it",
            self._clients.topic,
            EPOCHS,
            describe(reason),
        )
        self._is_usable = False
        return False

    def _is_there(self) -> bool:
        deadline = Deadline(self._clock, self._clients.timeout_s, pauses_s=_PAUSES_S)
        while True:
            try:
                topic_info(self._clients, EPOCHS)
                return True
            except KafkaException as error:
                reason = reason_of(error)
                is_gone = reason.code() in GONE
                if not is_gone and not is_temporary(reason):
                    return self.refused(reason)
                if not deadline.pause():
                    raise not_written(error) from error
                if is_gone and (refusal := self._make()) is not None:
                    return self.refused(refusal)

    def _make(self) -> KafkaError | None:
        """Why it cannot be made. Brokers that know it already, or answer too late, are asked again."""
        settings = self._clients.settings
        new = TopicSettings(
            settings.replication_factor, settings.replication_key, {"cleanup.policy": "compact"}
        )
        try:
            create_topic(self._clients, EPOCHS, 1, new)
        except KafkaException as error:
            reason = reason_of(error)
            return None if is_temporary(reason) else reason
        return None
