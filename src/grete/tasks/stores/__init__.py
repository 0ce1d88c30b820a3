"""Stores of tasks: files on disk, their serialized view, warm copies, rewinding."""
