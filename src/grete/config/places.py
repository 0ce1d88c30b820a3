"""Where files are, as it is written: a path of this machine, or an address that Hadoop's classes know."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_SCHEME = re.compile(r"file:|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_FILE = re.compile(r"file:(//(?P<host>[^/]*))?(?P<path>.*)", re.IGNORECASE | re.DOTALL)
_HERE = (None, "", "localhost")


def has_scheme(written: str) -> bool:
    """Whether it is no plain path: `scheme:/...`, or `file:...`. A path may have a colon as well."""
    return _SCHEME.match(written) is not None


def place_of(written: str) -> Path | str:
    """A file or folder of this machine as a path, also one that is written as `file:///path`; else the address.

    An address has no slash at its end.
    """
    if not has_scheme(written):
        return Path(written)
    file = _FILE.fullmatch(written)
    if file is not None and file["host"] in _HERE:
        return Path(unquote(file["path"]))
    return written.rstrip("/")


def without_user(address: str) -> str:
    """An address for people: without user, password and options, of which one may be a key."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
