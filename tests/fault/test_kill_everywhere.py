"""kill -9 at every named point of the data plane: each record is still counted exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grete.failpoints import POINTS

DATA_PLANE = [
    name for name in POINTS if name.split(".")[0] in ("container", "batch", "commit", "task", "store")
]
NEEDS_DAMAGE = "store.rebuilding"
RECORDS = 4_000

pytestmark = [pytest.mark.fault, pytest.mark.spark]


@pytest.mark.parametrize("point", [name for name in DATA_PLANE if name != NEEDS_DAMAGE])
def test_killed_at_a_point_the_job_ends_with_every_record_counted_once(
    counter_job: Any, tmp_path: Path, point: str
) -> None:
    counter_job.fill(RECORDS)
    first = 1 if point.startswith("container") else 2
    died = tmp_path / "died"
    result = counter_job.run(GRETE_FAILPOINT=f"{point}:kill:{first}", GRETE_FAILPOINT_ONCE=str(died))
    assert result.returncode == 0, result.stderr + counter_job.log()
    assert died.exists(), "the point was never reached, so this test showed nothing"
    counter_job.assert_exactly_once(RECORDS)


def test_killed_while_a_damaged_store_is_rebuilt(counter_job: Any, tmp_path: Path) -> None:
    counter_job.fill(RECORDS // 2)
    assert counter_job.run().returncode == 0
    for store in (counter_job.home / "jobs" / "counter-1" / "stores").rglob("*.db"):
        store.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    counter_job.fill(RECORDS // 2)
    died = tmp_path / "died"
    result = counter_job.run(GRETE_FAILPOINT=f"{NEEDS_DAMAGE}:kill", GRETE_FAILPOINT_ONCE=str(died))
    assert result.returncode == 0, result.stderr + counter_job.log()
    counter_job.assert_exactly_once(RECORDS)
