"""Write down how long each test took in the last run: `python -m tests.harness.durations`.

Only the order of tests follows from it, so it may be old, and need not be of this machine. Prints the files whose
tests computed longest, without servers and sessions that live on between tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from tests.harness import plugin
from tests.harness.__main__ import REPORT

_WORTH_S = 1.0
_DEAREST = 25


def main() -> None:
    """Setup, call and teardown together, for tests of a second and more, longest first."""
    total: defaultdict[str, float] = defaultdict(float)
    computed: Counter[str] = Counter()
    for line in (REPORT / "durations.tsv").read_text().splitlines():
        seconds, _, test, computed_s, _ = line.split("\t")
        total[test] += float(seconds)
        computed[test.partition("::")[0]] += float(computed_s)
    known = {**plugin.expected_durations(), **total}
    lines = [f"{seconds:.1f}\t{test}\n" for test, seconds in known.items() if seconds >= _WORTH_S]
    Path(plugin.__file__).with_name("durations.tsv").write_text("".join(sorted(lines, key=_longest_first)))
    for file, seconds in computed.most_common(_DEAREST):
        print(f"{seconds:8.1f} s of a processor\t{file}")


def _longest_first(line: str) -> tuple[float, str]:
    seconds, _, test = line.partition("\t")
    return -float(seconds), test


if __name__ == "__main__":
    main()
