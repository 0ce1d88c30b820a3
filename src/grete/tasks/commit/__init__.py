"""Commits of a batch: by the driver, or by the executors where the system has transactions for them."""
