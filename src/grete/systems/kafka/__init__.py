"""Kafka as a system: topics as streams, and transactions of executors."""

from grete.model.capabilities import Capabilities, SystemType

SYSTEM = SystemType(
    opens="grete.systems.kafka.system:open_kafka_system",
    capabilities=Capabilities(has_gaps=True, consumer_groups=True, kafka_topics=True, spark_connector=True),
    coordinator_log="grete.keyed_log.kafka:open_coordinator_log",
    log_sink="grete.systems.kafka.plain:PlainTopic",
    coordination="kafka",
)
