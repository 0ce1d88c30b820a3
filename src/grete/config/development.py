"""What a development machine cannot give: one broker has room for one copy of each topic (`grete run --dev`)."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.settings import Settings


def with_single_copies(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration, with one copy wherever it does not say how many; embedded systems keep no copies anyway."""
    names = ["job.coordinator.replication.factor", "task.checkpoint.replication.factor"]
    names += [f"stores.{store}.changelog.replication.factor" for store in Settings.of(config).store_names]
    settings = Settings.of(config)
    elsewhere = [name for name in settings.system_names if not settings.system(name).is_embedded]
    if not elsewhere:
        return dict(config)
    names += [f"systems.{name}.default.stream.replication.factor" for name in elsewhere]
    return {**dict.fromkeys(names, "1"), **config}
