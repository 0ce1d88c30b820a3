"""Kerberos tickets, with which a user gets in by GSSAPI: whether they can be used, and what is wrong with them.

MIT's library finds them as in any program: in the cache of `KRB5CCNAME`, or fetched with the keytab of
`KRB5_CLIENT_KTNAME`, and then again before they expire. A ticket is asked for when a connection is made, so one that
expires ends none.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from grete.errors import ConfigError

_KDC_UNREACHABLE = -1765328228
"""KRB5_KDC_UNREACH: no KDC of the realm answered."""
_WAY_OUT = (
    "Show tickets with klist; get one with kinit, or name a keytab in KRB5_CLIENT_KTNAME, which is used for new ones "
    "as well. Servers are asked for by the name in job.coordinator.zk.connect, as zookeeper/NAME"
)


def check_tickets_can_be_used() -> None:
    """kazoo's thread would end without a word, and its caller wait until the time for connecting is over.

    Raises:
        ConfigError: the module is missing.
    """
    if find_spec("kerberos") is None:
        raise ConfigError(
            "job.coordinator.zk.sasl.mechanism=GSSAPI needs the module kerberos, which is not installed: "
            "pip install 'grete[kerberos]' compiles it with the headers of MIT Kerberos (Debian: libkrb5-dev). Or "
            "log in by job.coordinator.zk.user and job.coordinator.zk.password, with DIGEST-MD5 or without a "
            "mechanism"
        )


def said(error: BaseException | None) -> str | None:
    """What Kerberos said, with the way out where it does not pass; None of an error that is not its own."""
    texts = [text for text, _ in _parts(error)]
    if not texts:
        return None
    return f"Kerberos says: {texts[-1]}{'' if is_outage(error) else f'. {_WAY_OUT}'}"


def is_outage(error: BaseException | None) -> bool:
    """Whether the KDC does not answer, which passes."""
    return any(code == _KDC_UNREACHABLE for _, code in _parts(error))


def _parts(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Texts and codes of the module's GSSError: of GSSAPI, then of Kerberos below it."""
    for part in () if error is None else error.args:
        match part:
            case (str(text), int(code)):
                yield text, code
