"""Ids and JSON of JobCoordinatorMetadata, byte for byte as Samza 1.8.0 computes them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import google_crc32c

from grete.errors import WireError
from grete.model.job import JobModel
from grete.model.metadata import JobCoordinatorMetadata
from grete.wire import java_json
from grete.wire.job_model_json import encode_containers

_CONFIG_PREFIXES = ("job.autosizing",)
_YARN_EPOCH = re.compile(r"container_e\d+_(\d+)_(\d+)_")


def _signed(number: int) -> str:
    return str(number - (1 << 32) if number >= 1 << 31 else number)


def config_id(config: Mapping[str, str]) -> str:
    """Signed CRC-32 over the UTF-16LE of key, value, key, ... sorted by key, of the keys that count (S0-8, S0-10).

    Raises:
        WireError: one of these keys has no value, where the real one throws.
    """
    crc = 0
    for key in sorted(k for k in config if k.startswith(_CONFIG_PREFIXES)):
        if config[key] is None:
            raise WireError(f"{key} has no value")
        crc = zlib.crc32(_utf16(config[key]), zlib.crc32(_utf16(key), crc))
    return _signed(crc)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", errors="surrogatepass")


def job_model_id(model: JobModel) -> str:
    """Signed CRC-32C of the JSON of the containers map; configuration does not count (S0-12)."""
    return _signed(google_crc32c.value(encode_containers(model)))


def epoch_id(cluster_type: str, environment: Mapping[str, str]) -> str:
    """The deployment's id: from YARN's CONTAINER_ID, or SAMZA_EPOCH_ID elsewhere.

    A YARN id with an epoch part (`container_e66_1569376389369_0221_01_000049`, after a restart of the resource
    manager) yields the application id, where Samza yields `e66_1569376389369`, the same for every application.

    Raises:
        KeyError: the variable is not set.
        WireError: CONTAINER_ID has too few parts.
    """
    if cluster_type != "YARN":
        return environment["SAMZA_EPOCH_ID"]
    container = environment["CONTAINER_ID"]
    with_epoch = _YARN_EPOCH.match(container)
    if with_epoch is not None:
        return f"{with_epoch[1]}_{with_epoch[2]}"
    parts = container.split("_")
    if len(parts) < 3:
        raise WireError(
            f"CONTAINER_ID={container!r} is not a YARN container id; outside of YARN, unset the variable"
        )
    return f"{parts[1]}_{parts[2]}"


def compare(new: JobCoordinatorMetadata, previous: JobCoordinatorMetadata | None) -> str | None:
    """The first thing that changed, by the name of its gauge; None when nothing did (S0-18 to S0-21)."""
    if previous is None or new.epoch_id != previous.epoch_id:
        return "newDeployment"
    if new.job_model_id != previous.job_model_id:
        return "jobModelChanged"
    return "configChanged" if new.config_id != previous.config_id else None


def changes(new: JobCoordinatorMetadata, previous: JobCoordinatorMetadata | None) -> set[str]:
    """Everything that changed, by the names that Samza 1.8.0 gives it; all of it when there was nothing before."""
    pairs = {
        "NEW_DEPLOYMENT": (new.epoch_id, previous and previous.epoch_id),
        "JOB_MODEL": (new.job_model_id, previous and previous.job_model_id),
        "CONFIG": (new.config_id, previous and previous.config_id),
    }
    return {name for name, (now, before) in pairs.items() if now != before}


def encode(metadata: JobCoordinatorMetadata) -> bytes:
    """The JSON that goes under `meta-key`."""
    return java_json.dumps(
        {
            "epoch-id": metadata.epoch_id,
            "config-id": metadata.config_id,
            "job-model-id": metadata.job_model_id,
        }
    )


def decode(data: bytes) -> JobCoordinatorMetadata:
    """Read it; unknown fields are ignored (S0-34).

    Raises:
        WireError: not such an object.
        IllegalStateError: an id is blank.
    """
    document = java_json.loads(data)
    try:
        return JobCoordinatorMetadata(document["epoch-id"], document["config-id"], document["job-model-id"])
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not job coordinator metadata: {error!r}") from error
