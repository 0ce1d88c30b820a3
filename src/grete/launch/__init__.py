"""The launch port: start and stop containers."""
