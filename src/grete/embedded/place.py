"""Where a processor is: its containers reach their leader over one loopback with a token in one GRETE_HOME, or, where
each processor has an address, from any machine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from grete.coordination.membership import Member
from grete.errors import MembersElsewhere
from grete.launch.processes import name_of

_NETWORK = Path("/proc/self/ns/net")


@dataclass(frozen=True, slots=True)
class ProcessorPlace:
    """A loopback and a home. Members say theirs; those of two places share a job where both have an address."""

    loopback: str = ""
    """A boot of a machine and a network on it: names of machines are not unique, and change."""
    home: str = ""
    address: str = ""
    """`processor.address`, empty where it is not set."""

    @classmethod
    def here(cls, home: Path, address: str = "") -> ProcessorPlace:
        """That of this process, whose GRETE_HOME is `home`; by the host's name where nothing else is known."""
        own = name_of(os.getpid())
        machine = socket.gethostname() if own is None else own.boot
        network = os.readlink(_NETWORK) if _NETWORK.is_symlink() else ""
        return cls(f"{machine} {network}".strip(), str(home.resolve()), address)

    def metadata(self) -> dict[str, str]:
        """As a member says it."""
        return asdict(self)

    def check(self, id: str, members: Mapping[str, Member]) -> None:
        """See that the other members are here, or can be reached. One of the same id is that of no other processor.

        Raises:
            MembersElsewhere: one of them is on another machine, or has another home, and has no address or this one
                has none.
        """
        for member in members.values():
            there = member.metadata
            is_here = (there.get("loopback"), there.get("home")) == (self.loopback, self.home)
            if member.id == id or is_here or (self.address and there.get("address")):
                continue
            home = there.get("home", "an unknown folder")
            what = (
                "has another GRETE_HOME"
                if there.get("loopback") == self.loopback
                else "runs on another machine"
            )
            raise MembersElsewhere(id, f"{member.id} ({member}, home {home})", what)


ANYWHERE = ProcessorPlace()
"""Of agents that need no loopback, as in a simulation."""
