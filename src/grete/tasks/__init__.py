"""What an executor runs: tasks with their stores, shares of a batch, commits. Needs no engine."""
