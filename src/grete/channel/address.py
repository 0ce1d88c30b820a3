"""Where a server on another machine is reached (`channel.keyed_relay`), and what the two ends prove to be."""

from __future__ import annotations

from dataclasses import dataclass, field

from grete.channel.tls import Ends


def address_of(text: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ValueError: it is something else.
    """
    host, _, port = text.rpartition(":")
    if not host:
        raise ValueError(f"{text[:200]!r} is no host:port")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """The way to a server on another machine: host:port of its relay, and the token that both ends have."""

    address: str
    token: str = field(repr=False)

    @property
    def ends(self) -> Ends:
        """What the two ends prove to be."""
        return Ends(self.token.encode(), client="container", server="coordinator")
