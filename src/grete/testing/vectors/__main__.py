"""`python -m grete.testing.vectors DIR`: a line a file; exit 0 only when all pass."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from grete.testing.vectors.run import check_directory


def main(arguments: list[str]) -> int:
    """Check the directory that the arguments name."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m grete.testing.vectors DIR", file=sys.stderr)
        return 2
    logging.disable()  # what our code remarks on odd inputs is not the checker's
    passed = []
    for result in check_directory(Path(arguments[0])):
        print(result, flush=True)
        passed.append(result.passed)
    if not passed:
        print(f"there is no .json file in {arguments[0]}", file=sys.stderr)
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
