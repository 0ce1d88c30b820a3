"""The README's five minutes, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def five_minutes() -> str:
    section = README.read_text().split("## Five minutes", 1)[1].split("\n## ", 1)[0]
    return "".join(re.findall(r"```bash\n(.*?)```", section, re.DOTALL))


def test_the_five_minutes_of_the_readme_work_as_written(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", five_minutes()],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GRETE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"key":"the","value":"2"' in done.stdout
    assert "tasknames.Partition 0.systems.local.streams.lines.partitions.0 = 1" in done.stdout
    assert "words: stopped" in done.stdout
    assert "task.max.records.per.batch: (not set) -> 5000" in done.stdout
    assert "enough for today" in done.stdout
