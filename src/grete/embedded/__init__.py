"""Embedded mode: processes of a user's own share a job, which one of them leads; `grete.StreamProcessor`."""
