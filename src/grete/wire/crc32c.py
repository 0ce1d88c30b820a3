"""CRC-32C (Castagnoli), the checksum behind Samza's job model ids. Tables of eight bytes at a time."""

from __future__ import annotations

import struct

_POLYNOMIAL = 0x82F63B78


def _tables() -> list[list[int]]:
    first = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        first.append(crc)
    tables = [first]
    for _ in range(7):
        previous = tables[-1]
        tables.append([first[crc & 0xFF] ^ (crc >> 8) for crc in previous])
    return tables


_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7 = _tables()


def crc32c(data: bytes) -> int:
    """The checksum as an unsigned 32-bit number."""
    crc = 0xFFFFFFFF
    whole = len(data) & ~7
    for first, high in struct.iter_unpack("<II", memoryview(data)[:whole]):
        low = crc ^ first
        crc = (
            _T7[low & 0xFF]
            ^ _T6[(low >> 8) & 0xFF]
            ^ _T5[(low >> 16) & 0xFF]
            ^ _T4[low >> 24]
            ^ _T3[high & 0xFF]
            ^ _T2[(high >> 8) & 0xFF]
            ^ _T1[(high >> 16) & 0xFF]
            ^ _T0[high >> 24]
        )
    for byte in data[whole:]:
        crc = _T0[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
