"""Bytes to values and back, one file a format, byte-compatible with Samza 1.8.0. Pure: no I/O, no clock."""
