"""The check of leader election on Kubernetes: the API server answers, and we have the rights. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from grete.config.settings import Settings
from grete.coordination.kubernetes.access import find_access
from grete.coordination.kubernetes.api_server import ApiServer
from grete.errors import GreteError
from grete.finding import Finding

_CHECK = "kubernetes"
_NEEDED = ("get", "create", "update")
_TIMEOUT_S = 5.0


def findings(settings: Settings) -> Iterator[Finding]:
    """Whether the API server answers, and what we may do with its leases."""
    try:
        access = find_access(settings.kubernetes)
        namespace = settings.kubernetes.namespace or access.namespace or "default"
        with closing(ApiServer(access)) as server:
            missing = [verb for verb in _NEEDED if not _may(server, verb, namespace)]
    except GreteError as error:
        yield Finding(_CHECK, False, str(error), "check job.coordinator.kubernetes.*, and that it runs")
        return
    who = f"{access.server} answers; {access.origin}"
    where = f"leases in namespace {namespace}"
    yield Finding(
        _CHECK,
        not missing,
        f"{who} may not {', '.join(missing)} {where}"
        if missing
        else f"{who} may {', '.join(_NEEDED)} {where}",
        f"bind it to a Role with {', '.join(_NEEDED)} on leases of coordination.k8s.io (docs/kubernetes.md)",
    )


def _may(server: ApiServer, verb: str, namespace: str) -> bool:
    """Every user may ask this of himself."""
    asked = {"namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases"}
    document = {"spec": {"resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = server.create(path, document, _TIMEOUT_S)
    return bool(answer and answer["status"].get("allowed"))
