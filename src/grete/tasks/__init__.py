"""The code that executors run: tasks with their stores, shares of a batch, commits. Needs no engine."""
