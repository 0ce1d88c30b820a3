"""Changes of a job's configuration, each written as one generation after the whole was found valid."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from grete.config.rules.changes import refusal
from grete.config.rules.validate import validate
from grete.config.time_zone import TIME_ZONE
from grete.errors import ConfigError
from grete.metadata.config_history import is_valid
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.coordinator_stream import ConfigChange
from grete.operations.job_handle import JobHandle
from grete.suggestions import hint


def set_config(
    handle: JobHandle, changes: Mapping[str, str | None], *, reason: str, force: bool = False
) -> list[ConfigChange]:
    """Set keys; None unsets. Keys that others change meanwhile keep what those wrote.

    Raises:
        ConfigError: a key is blank or unknown, the result would be invalid, or a set-once key of a stateful job would
            change; `force` allows it.
    """
    check_change(handle, changes, force=force)
    return handle.stream.change_config(changes, run_id=_run_id(handle), reason=reason)


def check_change(
    handle: JobHandle, changes: Mapping[str, str | None], *, force: bool = False
) -> Mapping[str, str]:
    """The configuration that `set_config` would write.

    Raises:
        ConfigError: as `set_config`.
    """
    if not force:
        refuse_blank(changes)
        _refuse_unknown(key for key, value in changes.items() if value is not None)
    settings = handle.settings
    if changes.get(TIME_ZONE, "") is None and settings.job.is_pipeline:
        raise ConfigError(f"{TIME_ZONE} is kept for the life of a pipeline: set it to another zone instead")
    old = settings.raw
    new = {**old, **{key: value for key, value in changes.items() if value is not None}}
    new = {key: value for key, value in new.items() if changes.get(key, "") is not None}
    _check(handle, old, new, force)
    return new


def refuse_blank(keys: Iterable[str]) -> None:
    """Keys are not blank, whatever is forced.

    Raises:
        ConfigError: one is.
    """
    problems = [f"the key {key!r} is blank" for key in keys if not key.strip()]
    if problems:
        raise ConfigError(*problems)


def _refuse_unknown(keys: Iterable[str]) -> None:
    from grete.config.keys import find_key, is_of_a_section, nearest_key

    unknown = [key for key in keys if is_of_a_section(key) and find_key(key) is None]
    if unknown:
        raise ConfigError(
            *(f"{key} is not a known key{hint(nearest_key(key, cutoff=0.7))}" for key in unknown)
        )


def roll_back_config(
    handle: JobHandle, number: int | None, *, reason: str = "", force: bool = False
) -> list[ConfigChange]:
    """Write an earlier configuration again, as a generation of its own: by default the last other, valid one.

    Raises:
        ConfigError: no such generation is in the stream any more, or not the whole of it; or it changes nothing, or
            see `set_config`.
    """
    known, current = handle.config_generations(), handle.config()
    if number is not None and number not in {generation.number for generation in known}:
        raise ConfigError(f"there is no generation {number} in the stream; `grete config history` lists them")
    others = [one for one in known if one.config != current and number in (None, one.number)]
    if number is None and not force:
        others = [one for one in others if is_valid(one.config)]
    if not others:
        raise ConfigError(
            "there is nothing to roll back: no generation before this one has another, valid configuration"
            if number is None
            else f"there is nothing to roll back: the configuration is that of generation {number}"
        )
    to = others[-1]
    if not to.whole:
        raise ConfigError(
            f"generation {to.number} may miss keys: the coordinator stream was compacted since, which drops values "
            f"that were written again later. Submit the configuration from its file (grete run --config), or set the "
            f"keys one by one (`grete config history` shows what is left of it)"
        )
    _check(handle, current, to.config, force)
    why = reason or f"rollback to generation {to.number}"
    return handle.stream.write_config(to.config, run_id=_run_id(handle), reason=why)


def _check(handle: JobHandle, old: Mapping[str, str], new: Mapping[str, str], force: bool) -> None:
    """A set-once key may always go back to what is in force, whatever has changed it since."""
    in_force = ConfigInForce(handle.stream)
    if force:
        in_force.force(new)
        return
    problems = [refusal(one) for one in in_force.changed_by(new) if old.get(one.key) != one.new]
    if problems:
        raise ConfigError(*problems)
    if old:
        validate(new)


def _run_id(handle: JobHandle) -> str:
    return handle.stream.run_id() or uuid.uuid4().hex
