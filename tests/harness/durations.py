"""Write down how long each test took in the last run: `python -m tests.harness.durations`.

Only the order of tests follows from it, so it may be old, and need not be of this machine.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.harness import plugin
from tests.harness.__main__ import REPORT

_WORTH_S = 1.0


def main() -> None:
    """Setup, call and teardown together, for tests of a second and more, longest first."""
    total: defaultdict[str, float] = defaultdict(float)
    for line in (REPORT / "durations.tsv").read_text().splitlines():
        seconds, _, test = line.split("\t", 2)
        total[test] += float(seconds)
    known = {**plugin.expected_durations(), **total}
    lines = [f"{seconds:.1f}\t{test}\n" for test, seconds in known.items() if seconds >= _WORTH_S]
    Path(plugin.__file__).with_name("durations.tsv").write_text("".join(sorted(lines, key=_longest_first)))


def _longest_first(line: str) -> tuple[float, str]:
    seconds, _, test = line.partition("\t")
    return -float(seconds), test


if __name__ == "__main__":
    main()
