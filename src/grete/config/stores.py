"""The stores a configuration declares, and the changelog stream behind each."""

from __future__ import annotations

from collections.abc import Mapping

from grete.model.ids import JobId, SystemStream


def store_names(config: Mapping[str, str]) -> list[str]:
    """Every store that `stores.<name>.*` configures, sorted."""
    return sorted({key.split(".")[1] for key in config if key.startswith("stores.") and key.count(".") >= 2})


def changelog_stream(store: str, job: JobId, config: Mapping[str, str]) -> str:
    """The stream behind a store: `stores.<name>.changelog`, or `<job>-<id>-<store>-changelog`."""
    named = config.get(f"stores.{store}.changelog")
    if named is None:
        return f"{job}-{store}-changelog"
    return SystemStream.parse(named).stream if "." in named else named
