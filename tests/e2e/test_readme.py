"""The blocks of README and tutorial, run as they stand there, from an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.waiting import patient

ROOT = Path(__file__).parents[2]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
OF_THE_TASK = ("A task with state", "Look at it", "Change it while it runs")

pytestmark = pytest.mark.spark


def blocks(section: str, document: Path = TUTORIAL) -> list[str]:
    """The shell blocks of a section."""
    text = document.read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)


def follow(script: str, folder: Path) -> str:
    """Its output in a shell in the folder, with the programs of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "GRETE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=patient(500),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(540)
def test_the_pipeline_of_the_readme_works_as_written(tmp_path: Path) -> None:
    shown = follow("".join(blocks("A pipeline", README)), tmp_path)
    plan, after = shown.split("tasknames.", 1)[0], shown
    assert "local.hot" in plan
    assert "celsius" in plan
    assert '"key":"b"' in after
    assert "tasknames.Partition 0.systems.local.streams.readings.partitions.0" in after
    assert len(list((tmp_path / "lake").glob("grete_batch=*"))) == 1


@pytest.mark.timeout(540)
def test_the_task_of_the_tutorial_works_as_written(tmp_path: Path) -> None:
    shown = follow("".join(block for section in OF_THE_TASK for block in blocks(section)), tmp_path)
    assert '"key":"the","value":"2"' in shown
    assert "tasknames.Partition 0.systems.local.streams.lines.partitions.0 = 1" in shown
    assert '"key":"burrow","value":"1"' in shown, "the line that came while the job ran is counted"
    assert "words: stopped" in shown
    assert "task.max.records.per.batch: (not set) -> 5000" in shown
    assert "enough for today" in shown


@pytest.mark.timeout(540)
def test_the_kafka_section_of_the_tutorial_works_as_written(tmp_path: Path) -> None:
    """With a broker that its own command starts; and the application that the section before it makes."""
    start, use, stop = blocks("On Kafka")
    try:
        shown = follow("".join([blocks("A task with state")[0], start, use]), tmp_path)
    finally:
        follow(stop, tmp_path)
    assert '"key":"the","value":"2"' in shown


@pytest.mark.timeout(540)
def test_the_processors_of_the_tutorial_share_a_job_as_written(tmp_path: Path) -> None:
    """Two programs, each with a Spark of its own."""
    shown = follow("".join(blocks("In a program of your own")), tmp_path)
    assert '"key":"castle","value":"1"' in shown
