"""Distinguishes brokers that refuse the login from brokers that are away.

To librdkafka both are a request without answer: it goes on trying, and reports failures only in passing. Waiting
for a broker's return is right, waiting for a wrong password to become the right one is a minute of silence.
"""

from __future__ import annotations

import logging

from grete.errors import LoginRefused
from grete.kafka.library import KafkaError
from grete.kafka.login import SettingsOrigin

_log = logging.getLogger(__name__)
_STRIKES = 3
"""A broker that has just started, or a connection that is cut in the handshake, may refuse once; not three times."""
_REMARKABLE = (KafkaError._TRANSPORT, KafkaError._RESOLVE)


class Refusals:
    """The refusals that one client met while it connected. `note` is its `error_cb`; called by its thread or ours."""

    def __init__(self, origin: SettingsOrigin) -> None:
        self._origin = origin
        self._strikes = 0
        self._refused = self._remark = ""

    def note(self, reason: KafkaError) -> None:
        """Note a remark of the client."""
        _log.debug("%s (%s)", reason.str(), reason.name())
        if reason.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._strikes += 1
            self._refused = self._remark = self._refusal(reason)
        elif reason.code() in _REMARKABLE:
            self._remark = f"{reason.str()}{self._hint(reason.str())}"

    def check(self) -> None:
        """Raises LoginRefused once the brokers have refused several times."""
        if self._strikes >= _STRIKES:
            raise LoginRefused(
                self._refused
            )  # the next attempt to connect may have remarked something else since

    def last_remark(self) -> str:
        """The last remark of the client, as an addition to an error; empty without one."""
        return f" ({self._remark})" if self._remark else ""

    def _refusal(self, reason: KafkaError) -> str:
        key, said = self._origin.key, f"system {self._origin.system!r}: {reason.str()}"
        if reason.code() == KafkaError._AUTHENTICATION:
            return (
                f"{said}. The brokers refuse the login: check user and password in {key('sasl.password')}, and "
                f"{key('sasl.mechanism')}"
            )
        trust = key("ssl.ca.location" if "ssl.ca.location" in self._origin.keys else "ssl.ca.pem")
        return (
            f"{said}. No trust between client and brokers: {trust} has to hold the certificate of the authority "
            f"(PEM) that signed the brokers', and {key('bootstrap.servers')} the names that it signed them for; "
            f"where brokers ask for a certificate of the client, check {key('ssl.certificate.pem')}"
        )

    def _hint(self, said: str) -> str:
        is_protocol = "PLAINTEXT broker listener?" in said or "SSL" in said
        return f"; check {self._origin.key('security.protocol')}" if is_protocol else ""
