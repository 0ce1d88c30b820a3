"""How all tests are run: side by side, each with a limit, nothing left behind. `python -m tests.harness --help`."""
