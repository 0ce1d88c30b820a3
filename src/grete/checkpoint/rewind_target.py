"""Where to rewind to: the values of `--to`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from grete.errors import ConfigError
from grete.model.startpoint import Startpoint, StartpointKind

FORMS = "oldest, upcoming, offset:N, timestamp:TIME or batch:N"
_LONGEST_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchTarget:
    """After a batch of a lineage; without `lineage`, after the last one of that number."""

    batch_id: int
    lineage: str | None = None


RewindTarget = Startpoint | BatchTarget


def parse_target(text: str, option: str = "--to") -> RewindTarget:
    """Read the value of an option. A startpoint's time of creation is set later.

    A time is milliseconds since 1970, or ISO 8601; without a zone it is UTC. A batch is `batch:N`, or
    `batch:LINEAGE/N` with the first characters of a lineage.

    Raises:
        ConfigError: none of the forms.
    """
    kind, colon, rest = text.partition(":")
    match kind, bool(colon):
        case "oldest", False:
            return Startpoint(StartpointKind.OLDEST, 0)
        case "upcoming", False:
            return Startpoint(StartpointKind.UPCOMING, 0)
        case "offset", True if rest.isascii() and rest.isdigit():
            return Startpoint(StartpointKind.SPECIFIC, 0, offset=str(int(rest)))
        case "timestamp", True:
            return Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=_time_ms(rest, option))
        case "batch", True:
            lineage, _, number = rest.rpartition("/")
            if number.isascii() and number.isdigit():
                return BatchTarget(int(number), lineage or None)
    raise ConfigError(f"{option} {text!r}: write {FORMS}")


def startpoint_target(text: str) -> Startpoint:
    """As `parse_target`, without batches: Samza's startpoints know none.

    Raises:
        ConfigError: none of the forms.
    """
    target = parse_target(text)
    if isinstance(target, BatchTarget):
        raise ConfigError(f"--to {text!r}: a startpoint has no batches; use `grete checkpoint rewind`")
    return target


def _time_ms(text: str, option: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= _LONGEST_MS:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} timestamp:{text}: write milliseconds since 1970 or ISO 8601, such as 2026-03-01T02:30:00Z"
        ) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
