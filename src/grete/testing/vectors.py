"""`python -m grete.testing.vectors` has moved to the workbench."""

from grete.testing.moved import run_moved

if __name__ == "__main__":
    run_moved("vectors")
