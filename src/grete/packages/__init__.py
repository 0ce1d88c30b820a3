"""Environments that move: API, framework and application, each with what it needs and nothing of the others.

`build` makes them from locks with hashes, `manifest` says what is in one, `verify` whether it still is.
"""
