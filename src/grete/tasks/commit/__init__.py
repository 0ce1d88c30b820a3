"""Commits of a batch, by the workers that ran it."""
