"""HTTP for other machines needs a port that they know, names that a certificate can have, and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from grete.config.choices import HttpAuthentication
from grete.config.key_tables.job import (
    HTTP_AUTH,
    HTTP_CERTIFICATE,
    HTTP_CERTIFICATE_KEY,
    HTTP_HOST,
    HTTP_NAMES,
    HTTP_PORT,
)
from grete.config.settings.coordinator import is_loopback
from grete.config.values import required_value_of, valid_value_of

_HOST_NAME = re.compile(r"(?!.*\b[0-9]+\.?\Z)(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63}){0,15}\.?")
_NO_HOST = "it is neither the name of a machine nor an address"


def http_server_problems(config: Mapping[str, str]) -> Iterator[str]:
    """What keeps other machines out, or lets in too many of them."""
    for name in valid_value_of(config, HTTP_NAMES) or ():
        if not _is_host(name):
            yield f"{HTTP_NAMES.name}: {name!r}: {_NO_HOST}"
    if HTTP_CERTIFICATE_KEY.name in config and HTTP_CERTIFICATE.name not in config:
        yield f"{HTTP_CERTIFICATE_KEY.name} is set without {HTTP_CERTIFICATE.name}: set both, or none"
    host = required_value_of(config, HTTP_HOST)
    if is_loopback(host):
        return
    if not _is_host(host):
        yield f"{HTTP_HOST.name}={host!r}: {_NO_HOST}"
    if valid_value_of(config, HTTP_PORT) == 0:
        yield (
            f"{HTTP_HOST.name}={host} is for other machines, and they need a port that they know: set "
            f"{HTTP_PORT.name}, or remove {HTTP_HOST.name}"
        )
    if valid_value_of(config, HTTP_AUTH) is HttpAuthentication.NONE:
        yield (
            f"{HTTP_AUTH.name}=none lets everybody read who reaches {HTTP_HOST.name}={host}: remove one of them. A "
            f"scraper has a token of its own, which gives metrics alone: `grete metrics scrape` names its file"
        )


def _is_host(text: str) -> bool:
    """Whether it is an address, or may be a name in a certificate."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
