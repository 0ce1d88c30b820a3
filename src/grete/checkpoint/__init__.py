"""Checkpoint stores, the offset manager and the operator's checkpoint tool."""
