"""CRC-32C (Castagnoli), the checksum behind Samza's job model ids, of 19 MB when a job has 100,000 tasks.

Long data is cut into blocks of equal length whose checksums numpy computes side by side, a byte of every block in
each step; a CRC is linear, so a block's checksum moves over the bytes behind it by another table, and they add up.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_BLOCK = 1024
_SIDE_BY_SIDE = 16 * _BLOCK
"""From this length on blocks are worth it, and numpy is imported."""


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum as an unsigned 32-bit number."""
    if len(data) < _SIDE_BY_SIDE:
        return _bytewise(data, _ALL) ^ _ALL
    whole = len(data) - len(data) % _BLOCK
    return _bytewise(data[whole:], _blockwise(memoryview(data)[:whole], _ALL)) ^ _ALL


def _bytewise(data: bytes, crc: int) -> int:
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _blockwise(data: memoryview, crc: int) -> int:
    import numpy as np

    table = np.array(_TABLE, dtype=np.uint32)
    blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, _BLOCK)
    crcs = np.zeros(len(blocks), dtype=np.uint32)
    for column in range(_BLOCK):
        crcs = _step(table, crcs, blocks[:, column])
    first, second, third, fourth = _over_a_block()
    for block in crcs.tolist():
        crc = (
            first[crc & 0xFF]
            ^ second[(crc >> 8) & 0xFF]
            ^ third[(crc >> 16) & 0xFF]
            ^ fourth[crc >> 24]
            ^ block
        )
    return crc


def _step(table: _Words, crcs: _Words, column: NDArray[np.uint8]) -> _Words:
    moved: _Words = table[(crcs ^ column) & 0xFF] ^ (crcs >> 8)
    return moved


@cache
def _over_a_block() -> tuple[tuple[int, ...], ...]:
    """What a checksum becomes when a block of zeros follows: a table for each of its four bytes."""
    import numpy as np

    table = np.array(_TABLE, dtype=np.uint32)
    zeros = np.zeros(1024, dtype=np.uint8)
    numbers = np.arange(1024, dtype=np.uint32)
    crcs: _Words = ((numbers & 0xFF) << (numbers // 256 * 8)).astype(np.uint32)
    for _ in range(_BLOCK):
        crcs = _step(table, crcs, zeros)
    return tuple(tuple(crcs[start : start + 256].tolist()) for start in range(0, 1024, 256))
