"""YARN's ResourceManager by its web services; no Hadoop client is needed."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar
from xml.etree import ElementTree

import msgspec
from msgspec import Meta, Struct

from grete.config.key_tables.deploy import YARN_ADDRESS, YARN_CONF
from grete.config.settings.deploy import DeploySettings
from grete.errors import ConfigError, JobError, ManagerUnreachable
from grete.http_answers import HTTPError, connections, whole_answer

T = TypeVar("T")

_TIMEOUT_S = 15.0
_REDIRECTS = 5
"""A standby names the active one so."""
_ENDED = ("FINISHED", "FAILED", "KILLED")
_ID = r"\Aapplication_\d+_\d+\Z"
"""It becomes part of the address of a kill."""
_WEB = "yarn.resourcemanager.webapp.address"


class YarnApplication(Struct, frozen=True, rename="camel"):
    """An application as the ResourceManager reports it."""

    id: Annotated[str, Meta(pattern=_ID)]
    state: str
    final_status: str = ""
    application_tags: str | None = None
    user: str | None = None
    started_time: int = 0
    diagnostics: str | None = None
    am_host_http_address: str | None = None
    am_container_logs: str | None = None

    @property
    def host(self) -> str:
        """Of its ApplicationMaster; empty while it has none."""
        return (self.am_host_http_address or "").rpartition(":")[0]

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state not in _ENDED

    @property
    def tags(self) -> list[str]:
        """What it is found by."""
        return (self.application_tags or "").split(",")

    @property
    def order(self) -> tuple[int, ...]:
        """Grows with each application that was submitted."""
        return tuple(map(int, self.id.split("_")[1:]))


class YarnAttempt(Struct, frozen=True, rename="camel"):
    """One attempt of an application: an ApplicationMaster."""

    id: int
    container_id: str | None = None
    node_id: str | None = None
    start_time: int = 0
    logs_link: str | None = None


class _GoingNode(Struct, rename={"address": "nodeHTTPAddress"}):
    address: str = ""


class _Nodes(Struct):
    node: list[_GoingNode] = []


class _FoundNodes(Struct):
    nodes: _Nodes | None


class _Applications(Struct):
    app: list[YarnApplication] = []


class _Found(Struct):
    apps: _Applications | None


class _Attempts(Struct, rename="camel"):
    app_attempt: list[YarnAttempt] = []


class _FoundAttempts(Struct, rename="camel"):
    app_attempts: _Attempts | None


class _Killed(Struct):
    state: str


class ResourceManager:
    """The ResourceManagers of one cluster, of which the one that is active answers."""

    def __init__(self, addresses: Sequence[str], timeout_s: float | None = None) -> None:
        """`timeout_s` is for each of them."""
        self._addresses = addresses
        self._timeout_s = _TIMEOUT_S if timeout_s is None else timeout_s

    def find(self, tag: str) -> list[YarnApplication]:
        """The applications with a tag that the ResourceManager still knows, the oldest first.

        Raises:
            JobError: it does not answer, or refuses.
        """
        found = self._ask(_Found, "GET", "apps", {"applicationTags": tag}).apps or _Applications()
        ours = [
            one for one in found.app if tag in one.tags
        ]  # what dropped the question answers with everybody's
        return sorted(ours, key=lambda one: one.order)

    def attempts(self, application: str) -> list[YarnAttempt]:
        """The attempts of an application, the first first.

        Raises:
            JobError: as `find`.
        """
        found = (
            self._ask(_FoundAttempts, "GET", f"apps/{application}/appattempts").app_attempts or _Attempts()
        )
        return sorted(found.app_attempt, key=lambda one: one.id)

    def decommissioned(self) -> frozenset[str]:
        """The nodes that go when what runs on them has ended, by the address of their pages.

        Raises:
            JobError: as `find`.
        """
        found = self._ask(_FoundNodes, "GET", "nodes", {"states": "DECOMMISSIONING"}).nodes or _Nodes()
        return frozenset(one.address for one in found.node)

    def kill(self, application: str) -> None:
        """Ask for an end of the application; it has ended once `find` says so.

        Raises:
            JobError: as `find`.
        """
        parameters = {"user.name": getpass.getuser()}
        self._ask(_Killed, "PUT", f"apps/{application}/state", parameters, {"state": "KILLED"})

    def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, str] | None = None,
    ) -> T:
        problems, is_away = [], False
        with connections() as client:
            for address in self._addresses:
                url = f"{address}/ws/v1/cluster/{path}"
                try:
                    answer = whole_answer(
                        client,
                        method,
                        url,
                        self._timeout_s,
                        parameters=parameters,
                        document=body,
                        redirects=_REDIRECTS,
                    )
                    if answer.is_success and answer.method == method:  # some redirects make a GET of a PUT
                        return msgspec.json.decode(answer.content, type=kind, strict=False)
                except (HTTPError, RecursionError) as error:
                    problems.append(f"{method} {url}: {error!r}")
                    is_away = True
                except msgspec.DecodeError as error:
                    problems.append(f"{method} {url}: no answer of YARN's, {error}: {answer.text[:300]}")
                else:
                    asked = f"{answer.method} {answer.url}"
                    problems.append(f"{asked}: {answer.status} {answer.text[:300]}")
        said = f"YARN's ResourceManager gives no answer: {'; '.join(problems)}"
        way_out = f"Check {YARN_ADDRESS.name} and that it runs"
        raise (ManagerUnreachable if is_away else JobError)(f"{said}. {way_out}")


def find_resource_manager(
    settings: DeploySettings, *, folder: Path | None = None, timeout_s: float | None = None
) -> ResourceManager:
    """The cluster that the configuration names, else Hadoop's own configuration, in `folder` if that is given.

    Raises:
        ConfigError: neither does.
    """
    addresses = settings.addresses or _addresses(hadoop_folder(settings) if folder is None else folder)
    return ResourceManager(addresses, timeout_s)


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
