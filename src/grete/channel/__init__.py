"""Encrypted connections between machines whose ends prove that they have one key; no certificates."""
