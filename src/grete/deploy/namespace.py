"""The objects of a job in one namespace of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass

from grete.coordination.kubernetes.api_server import ApiServer
from grete.deploy.objects import JOB_LABEL, Manifest, Object, object_of
from grete.errors import JobError

STRICT = "fieldValidation=Strict"
_TRIES = 20
"""For what others change between a look at it and a call."""
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}


def selector(job: str, *also: str) -> str:
    """Of what belongs to the job of this deployed name."""
    return ",".join((f"{JOB_LABEL}={job}", *also))


@dataclass(frozen=True, slots=True)
class JobNamespace:
    """One namespace of a server. Calls end within `call_s`."""

    server: ApiServer
    name: str
    call_s: float

    def collection(self, kind: str) -> str:
        """The path of the objects of a kind."""
        return COLLECTIONS[kind].format(self.name)

    def path(self, kind: str, name: str) -> str:
        """The path of an object."""
        return f"{self.collection(kind)}/{name}"

    def create(self, made: Manifest, query: str = STRICT) -> Object | None:
        """The object that was made; None where there is one of this name."""
        found = self.server.create(f"{self.collection(made['kind'])}?{query}", made, self.call_s)
        return None if found is None else object_of(found)

    def ensure(self, made: Manifest) -> None:
        """Make it, or make what is there equal to it."""
        name = made["metadata"]["name"]
        for _ in range(_TRIES):
            if self.create(made):
                return
            there = self.read(made["kind"], name)
            if there is None:
                continue
            version = {"resourceVersion": there.metadata.resource_version}
            document = {**made, "metadata": {**made["metadata"], **version}}
            path = f"{self.path(made['kind'], name)}?{STRICT}"
            if self.server.replace(path, document, self.call_s) is not None:
                return
        raise JobError(f"{made['kind']} {name} changes all the time: it could not be replaced {_TRIES} times")

    def read(self, kind: str, name: str) -> Object | None:
        """The object as it is now, None when there is none."""
        found = self.server.read(self.path(kind, name), self.call_s)
        return None if found is None else object_of(found)

    def remove(self, kind: str, name: str) -> bool:
        """Whether it was there."""
        for _ in range(_TRIES):
            there = self.read(kind, name)
            if there is None:
                return False
            if self.server.remove(self.path(kind, name), {"uid": there.metadata.uid}, self.call_s):
                return True
        raise JobError(f"{kind} {name} is made again all the time: it could not be removed {_TRIES} times")

    def labelled(self, kind: str, job: str, *also: str) -> list[Object]:
        """What belongs to the job of this deployed name, with the labels `also`."""
        return self.seen(kind, job, *also)[0]

    def seen(self, kind: str, job: str, *also: str) -> tuple[list[Object], str]:
        """As `labelled`, and the version of that sight, from which changes can be waited for."""
        found = self.server.select(self.collection(kind), selector(job, *also), self.call_s)
        objects = map(object_of, found.documents)  # what dropped the question answers with everybody's
        return [one for one in objects if one.metadata.labels.get(JOB_LABEL) == job], found.version
