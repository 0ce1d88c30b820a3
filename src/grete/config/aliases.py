"""Samza's class names and grete's names for the same things. Ported configurations keep their values."""

from __future__ import annotations

from collections.abc import Mapping

_SERDE = "org.apache.samza.serializers."
_SSP = "org.apache.samza.container.grouper.stream."
_TASK = "org.apache.samza.container.grouper.task."

SYSTEMS, SSP_GROUPERS, TASK_GROUPERS = "grete.systems", "grete.ssp_groupers", "grete.task_name_groupers"
CHECKPOINTS, STORES, LAUNCHERS = "grete.checkpoints", "grete.stores", "grete.launchers"
COORDINATION, REWRITERS, SERDES = "grete.coordination", "grete.rewriters", "grete.serdes"
REPORTERS = "grete.metrics_reporters"

ALIASES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    SYSTEMS: {
        "local": (),
        "kafka": ("org.apache.samza.system.kafka.KafkaSystemFactory",),
        "eventhubs": ("org.apache.samza.system.eventhub.EventHubSystemFactory",),
    },
    SSP_GROUPERS: {
        "GroupByPartitionFactory": (f"{_SSP}GroupByPartitionFactory",),
        "GroupBySystemStreamPartitionFactory": (f"{_SSP}GroupBySystemStreamPartitionFactory",),
        "AllSspToSingleTaskGrouperFactory": (f"{_SSP}AllSspToSingleTaskGrouperFactory",),
    },
    TASK_GROUPERS: {
        "GroupByContainerCountFactory": (f"{_TASK}GroupByContainerCountFactory",),
        "GroupByContainerIdsFactory": (f"{_TASK}GroupByContainerIdsFactory",),
        "SingleContainerGrouperFactory": (f"{_TASK}SingleContainerGrouperFactory",),
    },
    CHECKPOINTS: {
        "grete.checkpoint.log": ("org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory",),
        "grete.checkpoint.coordinator-stream": (),
        "grete.checkpoint.file-system": (
            "org.apache.samza.checkpoint.file.FileSystemCheckpointManagerFactory",
        ),
        "grete.checkpoint.azure-table": ("org.apache.samza.checkpoint.azure.AzureCheckpointManagerFactory",),
    },
    STORES: {
        "grete.store.sqlite": (
            "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory",
            # Samza's stores before 0.8, whose changelogs are the same.
            "org.apache.samza.storage.kv.LevelDbKeyValueStorageEngineFactory",
            "org.apache.samza.storage.kv.KeyValueStorageEngineFactory",
        ),
    },
    LAUNCHERS: {
        "process": ("org.apache.samza.job.local.ProcessJobFactory",),
        "thread": ("org.apache.samza.job.local.ThreadJobFactory",),
        "spark-submit": ("org.apache.samza.job.yarn.YarnJobFactory",),
    },
    COORDINATION: {
        "sqlite": (),
        "kafka": (),
        "kubernetes": (),
        "zookeeper": ("org.apache.samza.zk.ZkJobCoordinatorFactory",),
        # Three spellings are in the wild: the design document's, the manual's and the code's (S3-13).
        "azure": (
            "org.apache.samza.azure.AzureJobCoordinatorFactory",
            "org.apache.samza.AzureJobCoordinatorFactory",
            "org.apache.samza.coordinator.AzureJobCoordinatorFactory",
        ),
        "passthrough": ("org.apache.samza.standalone.PassthroughJobCoordinatorFactory",),
    },
    REWRITERS: {
        "environment": ("org.apache.samza.config.EnvironmentConfigRewriter",),
        "regex-input": ("org.apache.samza.config.RegExTopicGenerator",),
    },
    SERDES: {
        "bytes": (f"{_SERDE}ByteSerdeFactory", f"{_SERDE}ByteBufferSerdeFactory", "byte", "bytebuffer"),
        "string": (f"{_SERDE}StringSerdeFactory",),
        "json": (
            f"{_SERDE}JsonSerdeFactory",
            f"{_SERDE}JsonSerdeV2Factory",
            f"{_SERDE}MetricsSnapshotSerdeFactory",
            f"{_SERDE}MetricsSnapshotSerdeV2Factory",
            "org.apache.samza.logging.log4j.serializers.LoggingEventJsonSerdeFactory",
            "org.apache.samza.logging.log4j2.serializers.LoggingEventJsonSerdeFactory",
        ),
        "integer": (f"{_SERDE}IntegerSerdeFactory",),
        "long": (f"{_SERDE}LongSerdeFactory",),
        "double": (f"{_SERDE}DoubleSerdeFactory",),
        "uuid": (f"{_SERDE}UUIDSerdeFactory",),
        "avro": (),
        "avro-registry": (),
    },
    REPORTERS: {
        "snapshot": ("org.apache.samza.metrics.reporter.MetricsSnapshotReporterFactory",),
    },
}
"""Group -> grete's name -> Samza's class names."""


def canonical(group: str, name: str) -> str:
    """grete's name for `name`; a name that the group does not know comes back as it is."""
    for known, others in ALIASES.get(group, {}).items():
        if name == known or name in others:
            return known
    return name


def known_names(group: str) -> tuple[str, ...]:
    """grete's own names in a group, in the order of the table."""
    return tuple(ALIASES.get(group, {}))
