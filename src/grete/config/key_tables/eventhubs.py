"""Keys of systems on Azure Event Hubs, as Samza 1.8.0 spells them."""

from __future__ import annotations

from grete.config.choices import HubPartitioning
from grete.config.key import BOOLEAN, INTEGER, LIST, TEXT, ChangeClass, Key, one_of

_CONTAINER, _SET_ONCE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE
_HUBS, _STREAM, _SENSITIVE = "systems.%s.eventhubs", "streams.%s.eventhubs", "sensitive.streams.%s.eventhubs"
_OVER_KAFKA = "the Kafka endpoint is used"

STREAMS = Key(
    "systems.%s.stream.list",
    LIST,
    None,
    _CONTAINER,
    "Stream ids of an Event Hubs system.",
    no_effect="streams are found by `task.inputs` and `task.outputs`",
)
NAMESPACE = Key(
    f"{_STREAM}.namespace",
    TEXT,
    None,
    _SET_ONCE,
    "The Event Hubs namespace: its name, or the whole host name outside the public cloud.",
    default_doc="`systems.<system>.consumer.bootstrap.servers`",
)
ENTITY_PATH = Key(
    f"{_STREAM}.entitypath",
    TEXT,
    None,
    _SET_ONCE,
    "The hub's name in its namespace.",
    default_doc="the stream's physical name",
)
SAS_KEY_NAME = Key(
    f"{_SENSITIVE}.sas.keyname", TEXT, None, _CONTAINER, "The shared access policy.", is_secret=True
)
SAS_TOKEN = Key(
    f"{_SENSITIVE}.sas.token",
    TEXT,
    None,
    _CONTAINER,
    "The policy's key, or a whole connection string (`Endpoint=sb://...`); write a reference.",
    is_secret=True,
)
PARTITION_METHOD = Key(
    f"{_HUBS}.partition.method",
    one_of(HubPartitioning),
    HubPartitioning.HASHING,
    _CONTAINER,
    "Which partition a record goes to: by Event Hubs' own hash of the key, any, or the one that the key numbers.",
)
SEND_KEY = Key(f"{_HUBS}.send.key", BOOLEAN, "true", _CONTAINER, "Whether records are sent with their keys.")
LARGEST = Key(
    f"{_HUBS}.skipMessagesLargerThanBytes",
    INTEGER,
    "1024000",
    _CONTAINER,
    "The largest record that is sent. Samza drops larger ones; here the job stops and says so.",
    unit="bytes",
)
CONSUMER_GROUP = Key(
    f"{_STREAM}.consumer.group", TEXT, "$Default", _CONTAINER, "Samza's group.", no_effect=_OVER_KAFKA
)
_TUNING = {
    f"{_STREAM}.numClientThreads": "10",
    f"{_HUBS}.prefetchCount": "999",
    f"{_HUBS}.maxEventCountPerPoll": "50",
    f"{_HUBS}.runtime.info.timeout": "60000",
    f"{_HUBS}.receive.queue.size": "100",
    f"{_HUBS}.perPartition.connection": "true",
    f"{_HUBS}.max.retry.count": "3",
    f"{_HUBS}.retry.window.ms": "10800000",
    f"{_HUBS}.min.retry.interval.ms": "180000",
}

TABLE: tuple[Key[object], ...] = (
    *(v for v in list(globals().values()) if isinstance(v, Key)),
    *(
        Key(name, TEXT, default, _CONTAINER, "Tunes Samza's AMQP client.", no_effect=_OVER_KAFKA)
        for name, default in _TUNING.items()
    ),
)
