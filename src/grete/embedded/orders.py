"""How the leader of a job and its processors speak to each other: two coordination cells for each processor.

The leader writes the order, the processor the report. An order is for one incarnation of the processor and names one
launch of a container by its epoch, which grows with every launch of every leader (`model.fence.container_epoch`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from grete.coordination.cells import Cell, cell_name
from grete.model.ids import ContainerId

_log = logging.getLogger("grete.processor")
ORDERS, REPORTS = "orders", "reports"


class Wanted(StrEnum):
    """The end that an order wants for its container, if any."""

    RUN = "run"
    STOP = "stop"
    """At the next batch boundary."""
    KILL = "kill"
    """As STOP, which is the best a thread allows; the leader has fenced it off."""


class Order(msgspec.Struct, frozen=True):
    """The container that a processor is to run, and its environment."""

    processor: str
    incarnation: str
    container: ContainerId
    epoch: int
    wanted: Wanted
    environment: Mapping[str, str]


class ProcessorReport(msgspec.Struct, frozen=True):
    """The container of this epoch has ended at the processor. `leaves` says that it will run no other one.

    An `epoch` of 0 is none: the processor leaves without having run a container.
    """

    processor: str
    incarnation: str
    container: ContainerId
    epoch: int
    exit_code: int
    reason: str = ""
    place: str = ""
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class WrittenOrder:
    """An order as it is in its cell."""

    order: Order
    cell: Cell


_T = TypeVar("_T", Order, ProcessorReport)


def order_cell(processor: str) -> str:
    """The cell of a processor's order, alone below a prefix of its own so that it can be waited for."""
    return f"{orders_of(processor)}/order"


def orders_of(processor: str) -> str:
    """The prefix of `order_cell`."""
    return cell_name(ORDERS, processor)


def report_cell(processor: str) -> str:
    """The cell of a processor's report."""
    return cell_name(REPORTS, processor)


def encode(value: Order | ProcessorReport) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)


def decode(name: str, cell: Cell, kind: type[_T]) -> _T | None:
    """From JSON; None when it is something else, which is as no cell: its next writer writes over it."""
    try:
        return msgspec.json.decode(cell.value, type=kind)
    except msgspec.DecodeError as error:
        _log.warning("coordination cell %s holds no %s, and is not followed: %s", name, kind.__name__, error)
        return None
