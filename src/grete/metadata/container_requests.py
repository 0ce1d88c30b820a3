"""Requests for one container, as grete's own records: each is obeyed once, by the coordinator it was made to."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import REQUEST
from grete.model.ids import ContainerId

_PREFIX = "container/"
_HOST = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")
CONTAINER_REQUESTS = ("stop", "start", "restart")


@dataclass(frozen=True, slots=True)
class StoredContainerRequest:
    """A request to the coordinator with this epoch to `stop`, `start` or `restart` a container. `id` is unique."""

    container: ContainerId
    what: str
    epoch: int
    deadline_s: float
    id: str
    reason: str = ""
    host: str = ""
    """Where it shall run from then on, if it is launched."""


def ask_container(
    stream: CoordinatorStream,
    container: ContainerId,
    what: str,
    epoch: int,
    deadline_s: float,
    reason: str,
    host: str = "",
) -> str:
    """Ask the coordinator with this epoch; returns the new request's id."""
    id_ = uuid.uuid4().hex
    write_container_request(
        stream, StoredContainerRequest(container, what, epoch, deadline_s, id_, reason, host)
    )
    return id_


def write_container_request(stream: CoordinatorStream, request: StoredContainerRequest) -> None:
    """Ask; a newer request for the same container replaces one that was not read yet."""
    values = {
        "what": request.what,
        "epoch": str(request.epoch),
        "deadline-s": str(request.deadline_s),
        "id": request.id,
        "reason": request.reason,
        **({"host": request.host} if request.host else {}),
    }
    stream.append([stream.entry(REQUEST, _PREFIX + request.container, values)])


def read_container_requests(stream: CoordinatorStream) -> list[StoredContainerRequest]:
    """The last request for each container. A foreign record under our name is ignored."""
    found = []
    for key, message in stream.messages(REQUEST).items():
        values = message.values
        if not key.startswith(_PREFIX) or values is None:
            continue
        try:
            container = ContainerId(key.removeprefix(_PREFIX))
            epoch, deadline_s = int(values["epoch"]), float(values["deadline-s"])
            reason, host = values.get("reason", ""), values.get("host", "")
            if host and not _HOST.fullmatch(host):
                continue
            if values["what"] not in CONTAINER_REQUESTS or not 0 <= deadline_s < float("inf"):
                continue
            found.append(
                StoredContainerRequest(
                    container, values["what"], epoch, deadline_s, values["id"], reason, host
                )
            )
        except (KeyError, ValueError):
            continue
    return found
