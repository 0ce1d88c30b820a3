"""A digest of the keys that a container is built from, values in one spelling.

Two configurations with equal fingerprints need nothing restarted, whichever coordinator compares them (S0-24).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import orjson

from grete.config.key import ChangeClass
from grete.config.key_tables import autosizing, coordinator, job, streams, task
from grete.config.keys import find_key
from grete.config.rules.changes import effective

_BY_THE_MODEL = (
    job.CONTAINER_COUNT,
    job.CONTAINER_IDS,
    autosizing.AUTOSIZING,
    autosizing.AUTOSIZING_COUNT,
    task.INPUTS,
    task.BROADCAST,
)
"""A change of these shows in tasks and SSPs: only containers whose tasks differ have anything to do."""
_BY_THE_COORDINATOR = (
    *(
        job.HTTP_HOST,
        job.HTTP_PORT,
        job.HTTP_AUTH,
        job.HTTP_NAMES,
        job.HTTP_CERTIFICATE,
        job.HTTP_CERTIFICATE_KEY,
        job.HTTP_METRICS_TOKEN,
    ),
    coordinator.LEASE_TTL,
)
"""Read once by the coordinator; a change takes effect when the job is run again."""
_ELSEWHERE = {name for key in (*_BY_THE_MODEL, *_BY_THE_COORDINATOR) for name in key.all_names()}
_CLASSES = {
    "query": (ChangeClass.RESTART_QUERY,),
    "process": (ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE),
}


def fingerprint(config: Mapping[str, str], of: str) -> str:
    """The digest of what a `query` or a `process` is built from."""
    chosen = {}
    for name in config:
        known = find_key(name)
        change = ChangeClass.RESTART_CONTAINER if known is None else known.change
        if name in _ELSEWHERE or change not in _CLASSES[of] or (known is not None and known.no_effect):
            continue
        # a relative path is the same one in each working folder of a deployment
        value = config[name] if known is None else effective(known, name, config, path=os.path.normpath)
        if known is None or known is streams.STORE_FACTORY or value != known.default:
            chosen[name if known is None or known.is_family else known.name] = value
    return digest(sorted(chosen.items()))


def digest(document: object) -> str:
    """A digest of a JSON-able document."""
    return hashlib.sha256(orjson.dumps(document)).hexdigest()[:32]
