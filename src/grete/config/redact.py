"""Keeps secrets out of everything people read (RELIABILITY rule 18)."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "********"
_SECRET_KEY = re.compile(
    r"^sensitive\.|password|passwd|secret|token(?!ize)|credential|jaas|api[._-]?key|access[._-]?key|account[._-]?key"
    r"|\bsas\b|connection[._-]?string",
    re.IGNORECASE,
)
_URL_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(env|file):[^}]+\}")


def is_secret_key(key: str) -> bool:
    """Whether a key's value is never shown."""
    return _SECRET_KEY.search(key) is not None


def redact(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration for people: secrets masked, references to them shown as references."""
    return {key: redact_value(key, value) for key, value in config.items()}


def redact_value(key: str, value: str) -> str:
    """One value for people."""
    if is_secret_key(key) and not _REFERENCE.fullmatch(value):
        return MASK
    return _URL_USERINFO.sub(rf"\g<scheme>{MASK}@", value)
