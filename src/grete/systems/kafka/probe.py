"""The check of a changelog's topic: a rule over facts, so that it needs no broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grete.finding import Finding
from grete.kafka.probe import topic_health

if TYPE_CHECKING:
    from grete.kafka.inspector import TopicFacts
    from grete.systems.kafka.stream_settings import KafkaStreamSettings


def changelog_topic(system: str, streams: KafkaStreamSettings, topic: TopicFacts) -> Iterator[Finding]:
    """The topic of a changelog: its store can be rebuilt from it, and what expires goes from it."""
    check = f"changelog {system}.{topic.name}"
    yield from topic_health(check, topic)
    policy = topic.config.get("cleanup.policy", "not known, for want of rights")
    problem = streams.changelog_problem(topic.name, topic.config) if topic.config else None
    says = f"{topic.partitions} partitions, cleanup.policy={policy}"
    yield Finding(
        check, problem is None, says, "" if problem is None else f"it {problem.says}; {problem.way_out}"
    )
