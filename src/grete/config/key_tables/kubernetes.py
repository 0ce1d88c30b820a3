"""Keys of leader election on Kubernetes."""

from __future__ import annotations

import re

from grete.config.key import PATH, TEXT, ChangeClass, Key, Type

_CONTAINER, _SET_ONCE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE
_PREFIX = "job.coordinator.kubernetes"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"


def _label(value: str) -> str:
    if len(value) > 63 or not re.fullmatch(_LABEL, value):
        raise ValueError(
            "it is no name on Kubernetes: up to 63 of a to z, 0 to 9 and -, with no - at its ends"
        )
    return value


LABEL = Type("a name on Kubernetes", _label)
NAMESPACE = Key(
    f"{_PREFIX}.namespace",
    LABEL,
    None,
    _SET_ONCE,
    "The namespace of the Leases.",
    default_doc="the pod's own; outside of a pod that of the context, else `default`",
)
LEASE_PREFIX = Key(
    f"{_PREFIX}.lease.prefix",
    LABEL,
    "grete",
    _SET_ONCE,
    "How the names of the Leases begin.",
)
KUBECONFIG = Key(
    f"{_PREFIX}.kubeconfig",
    PATH,
    None,
    _CONTAINER,
    "The file that says where the API server is and who we are.",
    default_doc="the pod's service account; outside of a pod `KUBECONFIG`, else `~/.kube/config`",
)
CONTEXT = Key(
    f"{_PREFIX}.context",
    TEXT,
    None,
    _CONTAINER,
    "The context of that file.",
    default_doc="its current context",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
