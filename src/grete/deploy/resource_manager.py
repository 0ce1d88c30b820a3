"""YARN's ResourceManager by its web services; no Hadoop client is needed."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx

from grete.config.key_tables.deploy import YARN_ADDRESS, YARN_CONF
from grete.config.settings.deploy import DeploySettings
from grete.errors import ConfigError, JobError

_TIMEOUT_S = 15.0
_ENDED = ("FINISHED", "FAILED", "KILLED")
_ID = re.compile(r"application_(\d+)_(\d+)")
_WEB = "yarn.resourcemanager.webapp.address"


@dataclass(frozen=True, slots=True)
class YarnApplication:
    """An application as the ResourceManager reports it."""

    id: str
    state: str
    final_status: str
    tags: tuple[str, ...]
    user: str
    queue: str
    started_ms: int
    tracking_url: str
    diagnostics: str

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state not in _ENDED

    @property
    def order(self) -> tuple[int, int]:
        """Grows with each application that was submitted."""
        found = _ID.fullmatch(self.id)
        return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True, slots=True)
class YarnAttempt:
    """One attempt of an application: an ApplicationMaster."""

    number: int
    container: str
    node: str
    started_ms: int
    logs: str


class ResourceManager:
    """The ResourceManagers of one cluster, of which the one that is active answers."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    def find(self, tag: str) -> list[YarnApplication]:
        """The applications with a tag that the ResourceManager still knows, the oldest first.

        Raises:
            JobError: it does not answer, or refuses.
        """
        apps = (self._ask("GET", "apps", {"applicationTags": tag})["apps"] or {}).get("app", ())
        return sorted(map(_application, apps), key=lambda one: one.order)

    def attempts(self, application: str) -> list[YarnAttempt]:
        """The attempts of an application, the first first.

        Raises:
            JobError: as `find`.
        """
        found = self._ask("GET", f"apps/{application}/appattempts")["appAttempts"] or {}
        return sorted(map(_attempt, found.get("appAttempt", ())), key=lambda one: one.number)

    def kill(self, application: str) -> None:
        """Ask for an end of the application; it has ended once `find` says so.

        Raises:
            JobError: as `find`.
        """
        self._ask("PUT", f"apps/{application}/state", {"user.name": getpass.getuser()}, {"state": "KILLED"})

    def _ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        problems = []
        for address in self._addresses:
            url = f"{address}/ws/v1/cluster/{path}"
            try:
                answer = httpx.request(
                    method,
                    url,
                    params=parameters,
                    json=body,
                    timeout=_TIMEOUT_S,
                    follow_redirects=True,  # a standby names the active one so
                    trust_env=False,
                )
                if answer.status_code < 300:
                    document: dict[str, Any] = answer.json()
                    return document
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                problems.append(f"{method} {url}: {error!r}")
            else:
                problems.append(f"{method} {url}: {answer.status_code} {answer.text[:300]}")
        raise JobError(
            f"YARN's ResourceManager gives no answer: {'; '.join(problems)}. Check {YARN_ADDRESS.name} and that it "
            "runs; nothing was changed"
        )


def find_resource_manager(settings: DeploySettings) -> ResourceManager:
    """The cluster that the configuration names, else Hadoop's own configuration.

    Raises:
        ConfigError: neither does.
    """
    return ResourceManager(settings.addresses or _addresses(hadoop_folder(settings)))


def hadoop_folder(settings: DeploySettings) -> Path:
    """The folder of Hadoop's configuration.

    Raises:
        ConfigError: there is none.
    """
    named = settings.hadoop_folder or os.environ.get("YARN_CONF_DIR") or os.environ.get("HADOOP_CONF_DIR")
    if not named or not Path(named).is_dir():
        raise ConfigError(
            f"YARN's clients need Hadoop's configuration, and {named or 'none'} is no folder: set {YARN_CONF.name} "
            "or HADOOP_CONF_DIR to the folder of core-site.xml and yarn-site.xml"
        )
    return Path(named)


def _addresses(folder: Path) -> list[str]:
    site = folder / "yarn-site.xml"
    try:
        root = ElementTree.parse(site).getroot()  # noqa: S314 - the operator's own file, which Hadoop reads as well
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigError(f"cannot read {site}: {error}; or set {YARN_ADDRESS.name}") from error
    found = {one.findtext("name", ""): one.findtext("value", "") for one in root.iter("property")}
    ids = [
        f".{one.strip()}" for one in found.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if one.strip()
    ]
    secure = found.get("yarn.http.policy") == "HTTPS_ONLY"
    scheme, key, port = (
        ("https", _WEB.replace("webapp", "webapp.https"), 8090) if secure else ("http", _WEB, 8088)
    )
    addresses = []
    for suffix in ids or [""]:
        host = found.get(f"yarn.resourcemanager.hostname{suffix}")
        address = found.get(f"{key}{suffix}") or (f"{host}:{port}" if host else None)
        if address and "${" not in address:
            addresses.append(f"{scheme}://{address}")
    if not addresses:
        raise ConfigError(f"{site} does not say where the ResourceManager is; set {YARN_ADDRESS.name}")
    return addresses


def _application(found: Mapping[str, Any]) -> YarnApplication:
    tags = tuple(filter(None, str(found.get("applicationTags") or "").split(",")))
    return YarnApplication(
        str(found["id"]),
        str(found["state"]),
        str(found.get("finalStatus", "")),
        tags,
        user=str(found.get("user") or ""),
        queue=str(found.get("queue") or ""),
        started_ms=int(found.get("startedTime") or 0),
        tracking_url=str(found.get("trackingUrl") or ""),
        diagnostics=str(found.get("diagnostics") or "").strip(),
    )


def _attempt(found: Mapping[str, Any]) -> YarnAttempt:
    return YarnAttempt(
        int(found["id"]),
        str(found.get("containerId") or ""),
        str(found.get("nodeId") or ""),
        int(found.get("startTime") or 0),
        str(found.get("logsLink") or ""),
    )
