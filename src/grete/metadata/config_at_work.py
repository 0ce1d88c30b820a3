"""With which configuration a job's containers were last at work, for a coordinator that takes over (decision 59)."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.rules.fingerprint import digest
from grete.metadata.config_history import config_generations
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import read_state

AT_WORK = "grete-config-at-work"


def write_at_work(stream: CoordinatorStream, config: Mapping[str, str], run_id: str) -> None:
    """All containers of this run are at work with it. Durable on return, refused when a newer leader exists."""
    values, before = {"digest": _digest(config), "run-id": run_id}, stream.messages(AT_WORK).get("job")
    if before is None or before.values != values:
        stream.append([stream.entry(AT_WORK, "job", values)])


def config_before(stream: CoordinatorStream, config: Mapping[str, str]) -> dict[str, str] | None:
    """What the containers of a run that has not ended were last at work with, if not with `config`.

    None where nobody knows: no coordinator of this run has seen them at work, or the log was compacted since.
    """
    state, message = read_state(stream), stream.messages(AT_WORK).get("job")
    if state is None or state.is_terminal or message is None or message.values is None:
        return None
    known = message.values.get("digest", "")
    if message.values.get("run-id") != stream.run_id() or known == _digest(config):
        return None
    before = reversed(config_generations(stream.log))
    return next((dict(one.config) for one in before if one.whole and _digest(one.config) == known), None)


def _digest(config: Mapping[str, str]) -> str:
    return digest(sorted(config.items()))
