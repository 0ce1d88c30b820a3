"""`python -m grete_workbench.vectors DIR`: a line a file; exit 0 only when all pass."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from grete_workbench.vectors.run import check_directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the directory that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m grete_workbench.vectors", description=__doc__)
    parser.add_argument("directory", metavar="DIR", type=Path, help="the vectors: a .json file a subject")
    directory = parser.parse_args(arguments).directory
    if not directory.is_dir():
        parser.error(f"{directory} is no folder")
    logging.disable()  # what our code remarks on odd inputs is not the checker's
    passed = []
    for result in check_directory(directory):
        print(result, flush=True)
        passed.append(result.passed)
    if not passed:
        print(f"there is no .json file in {directory}", file=sys.stderr)
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
