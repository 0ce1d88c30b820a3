"""Where Prometheus scrapes the jobs of a home, each with its own token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

from grete.channel.tls import host_in_url
from grete.config.settings.coordinator import CoordinatorSettings
from grete.coordinator.public_address import PublicAddress, certificate_of
from grete.errors import ConfigError
from grete.model.ids import JobId
from grete.operations.job_handle import JobHandle
from grete.server.rights import TokenFiles


class Target(NamedTuple):
    """A coordinator's address; one that is not fixed is another one after the next start.

    `authority` is a file of the certificate by which a scraper knows it; empty where it is among those that the
    scraper's machine trusts. None without TLS.
    """

    job: JobId
    address: str
    token: Path
    is_fixed: bool
    authority: str | None = None


def target_of(handle: JobHandle) -> Target | None:
    """Where the job answers, or will by its configuration; None where nobody knows."""
    coordinator, state = handle.settings.coordinator, handle.state()
    token = TokenFiles.of(handle.state_directory).metrics
    if coordinator.is_public:
        holder = handle.election.holder()
        public = PublicAddress.of(coordinator, None if holder is None else holder.host)
        assert public is not None, "it is so on every machine"
        files = certificate_of(coordinator, handle.state_directory)
        own = "" if coordinator.http_certificate else str(files.certificate)
        return Target(handle.job, public.location, token, is_fixed=True, authority=own)
    if coordinator.http_port:
        host = coordinator.http_host
        return Target(handle.job, f"{host_in_url(host)}:{coordinator.http_port}", token, is_fixed=True)
    if state is None or not state.url or handle.election.holder() is None:
        return None
    return Target(handle.job, urlsplit(state.url).netloc, token, is_fixed=False)


def scrape_configs(targets: Sequence[Target]) -> str:
    """A part of Prometheus' configuration: a job has a token of its own, so each is a `job_name` of its own."""
    found = [
        {
            "job_name": f"grete-{one.job.key}",
            **_tls(one.authority),
            "authorization": {"credentials_file": str(one.token)},
            "static_configs": [{"targets": [one.address], "labels": {"grete_job": one.job.shown}}],
        }
        for one in targets
    ]
    return yaml.safe_dump({"scrape_configs": found}, sort_keys=False)


def file_sd(job: JobId, coordinator: CoordinatorSettings, hosts: Sequence[str]) -> str:
    """A file of targets as Prometheus' `file_sd_configs` reads it: the job's coordinator on each of these machines.

    Raises:
        ConfigError: other machines do not reach it.
    """
    if not coordinator.is_public:
        raise ConfigError(
            f"no other machine reaches the coordinator of {job.shown}: set job.http.host, as 0.0.0.0, and "
            f"job.http.port"
        )
    addresses = [PublicAddress.of(coordinator, host) for host in hosts]
    targets = [one.location for one in addresses if one is not None]
    labels = {"__scheme__": "https", "grete_job": job.shown}
    return json.dumps([{"targets": targets, "labels": labels}] if targets else [], indent=2)


def _tls(authority: str | None) -> dict[str, object]:
    if authority is None:
        return {}
    return {"scheme": "https", **({"tls_config": {"ca_file": authority}} if authority else {})}
