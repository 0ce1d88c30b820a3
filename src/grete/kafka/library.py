"""confluent-kafka, imported in one place."""

from __future__ import annotations

from grete.errors import MissingExtra

try:
    from confluent_kafka import OFFSET_BEGINNING as OFFSET_BEGINNING
    from confluent_kafka import Consumer as Consumer
    from confluent_kafka import IsolationLevel as IsolationLevel
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka import Message as Message
    from confluent_kafka import Producer as Producer
    from confluent_kafka import TopicCollection as TopicCollection
    from confluent_kafka import TopicPartition as TopicPartition
    from confluent_kafka.admin import AdminClient as AdminClient
    from confluent_kafka.admin import AlterConfigOpType as AlterConfigOpType
    from confluent_kafka.admin import ConfigEntry as ConfigEntry
    from confluent_kafka.admin import ConfigResource as ConfigResource
    from confluent_kafka.admin import NewPartitions as NewPartitions
    from confluent_kafka.admin import NewTopic as NewTopic
    from confluent_kafka.admin import OffsetSpec as OffsetSpec
    from confluent_kafka.admin import ResourceType as ResourceType
except ImportError as error:
    raise MissingExtra("confluent_kafka", "kafka") from error
