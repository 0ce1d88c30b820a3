"""Named points: armed from the environment, each at its pass, in the processes that are meant."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grete.failpoints import POINTS

ROOT = Path(__file__).parents[3]
PASS = "from grete.failpoints import failpoint\n" + "\n".join(
    f"failpoint({name!r}); print({name!r}, flush=True)"
    for name in ("submit.elected", "commit.before", "commit.before")
)
CAMPAIGNS = {
    "e2e/test_pipeline_kills.py": ("sink",),
    "unit/tasks/test_snapshots.py": ("snapshot",),
    "fault/test_clones.py": ("clone",),
    "fault/test_store_transfer.py": ("transfer",),
    "fault/test_elasticity.py": ("elasticity",),
    "fault/test_submit.py": (
        "submit",
        "leader",
        "coordinator",
        "model",
        "history",
        "state",
        "launch",
        "log",
        "file",
    ),
    "fault/test_kill_everywhere.py": ("container", "lineage", "batch", "epoch", "commit", "task", "store"),
    "fault/test_kill_commit.py": ("commit", "log", "file", "checkpoint"),
    "fault/test_kill_rewind.py": ("startpoint",),
    "fault/test_operated_changes.py": ("change",),
    "fault/test_kafka_job.py": ("executor",),
    "fault/test_azure_job.py": ("azure",),
}


def passed(**environment: str) -> tuple[list[str], int]:
    """The points of a process that passes `submit.elected` once and `commit.before` twice."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRETE_FAILPOINT")}
    result = subprocess.run(
        [sys.executable, "-c", PASS], env={**inherited, **environment}, capture_output=True, text=True
    )
    return result.stdout.split(), result.returncode


def test_a_point_acts_at_its_pass() -> None:
    everything = ["submit.elected", "commit.before", "commit.before"]
    assert passed() == (everything, 0)
    assert passed(GRETE_FAILPOINT="commit.before:kill:2") == (everything[:2], -9)
    assert passed(GRETE_FAILPOINT="commit.before:raise") == (everything[:1], 1)
    assert passed(GRETE_FAILPOINT="commit.before:kill:3") == (everything, 0)


def test_of_several_points_each_acts_in_one_process_only(tmp_path: Path) -> None:
    settings = {
        "GRETE_FAILPOINT": "commit.before:kill,submit.elected:kill,submit.elected:kill",
        "GRETE_FAILPOINT_ONCE": str(tmp_path / "made" / "here"),
    }
    assert [passed(**settings)[1] for _ in range(4)] == [-9, -9, -9, 0]
    assert sorted(path.name for path in (tmp_path / "made" / "here").iterdir()) == [
        "0-commit.before",
        "1-submit.elected",
        "2-submit.elected",
    ]


def test_only_the_container_that_is_meant_is_armed() -> None:
    settings = {"GRETE_FAILPOINT": "submit.elected:kill", "GRETE_FAILPOINT_CONTAINER": "1"}
    assert passed(**settings)[1] == 0
    assert passed(**settings, SAMZA_CONTAINER_ID="0")[1] == 0
    assert passed(**settings, SAMZA_CONTAINER_ID="1")[1] == -9


@pytest.mark.parametrize("text", ["commit.befor:kill", "commit.before:explode", "commit.before", ":"])
def test_a_slip_of_the_hand_is_an_error(text: str) -> None:
    assert passed(GRETE_FAILPOINT=text) == ([], 1)


def test_every_point_is_passed_somewhere_and_nothing_else_is() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r'failpoint\(\s*"([^"]+)"', sources)) == set(POINTS)


def test_every_family_of_points_has_a_campaign_that_goes_through_it() -> None:
    met = {family for families in CAMPAIGNS.values() for family in families}
    assert {name.split(".")[0] for name in POINTS} == met, "a new family needs a campaign"
    for file, families in CAMPAIGNS.items():
        text = (ROOT / "tests" / file).read_text()
        assert all(f'"{family}' in text for family in families), file
