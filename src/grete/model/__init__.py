"""Frozen values of the domain: identifiers, streams, job model, checkpoints, startpoints, locality."""
