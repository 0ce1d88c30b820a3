"""How containers on other machines reach the leader, as a record of its own in the coordinator stream.

The token may be there, since who reads the stream reads the configuration as well, and the token gives no more.
"""

from __future__ import annotations

from grete.channel.address import ChannelAddress
from grete.metadata.coordinator_stream import CoordinatorStream

CHANNEL = "grete-channel"
_KEY = "container-token"
"""A name by which tools mask the value."""


def write_channel(stream: CoordinatorStream, channel: ChannelAddress, epoch: int) -> None:
    """Of the leader of this epoch. Durable on return, refused when a newer leader exists."""
    values = {"value": channel.token, "address": channel.address, "epoch": str(epoch)}
    stream.append([stream.entry(CHANNEL, _KEY, values)])


def read_channel(stream: CoordinatorStream, epoch: int | None = None) -> ChannelAddress | None:
    """The way to the leader of this epoch, or to the last one; None when there is none, or a foreign record."""
    message = stream.messages(CHANNEL).get(_KEY)
    values = {} if message is None or message.values is None else message.values
    if epoch is not None and values.get("epoch") != str(epoch):
        return None
    address, token = values.get("address"), values.get("value")
    return ChannelAddress(address, token) if address and token else None
