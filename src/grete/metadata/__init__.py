"""Meaning over a keyed log: the coordinator stream, namespaced stores, locality, assignments, startpoints."""
