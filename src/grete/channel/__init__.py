"""Encrypted connections between machines whose ends prove that they have one key; there is no authority."""
