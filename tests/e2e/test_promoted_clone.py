"""The commands of a second version beside the first, as docs/operating.md has them, with Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_both_are_run_to_the_same_offsets_compared_and_swapped(counter_job: Any) -> None:
    job = counter_job
    job.fill(200)
    assert job.run().returncode == 0
    clone = job.config.parent / "counter-2.properties"
    job.of_home("job", "clone", "--job", "counter", "--as", "counter-2", "--to-file", str(clone))
    job.fill(100)
    job.of_home("run", "--quiet", "--config", str(clone), "--until-drained")
    both = ("--job", "counter-2", "--over", "counter")
    job.of_home("job", "compare", *both, code=1)
    found = json.loads(job.of_home("job", "promote", *both, "-o", "json").stdout)
    assert found["equal"]
    assert [one["records"] for one in found["outputs"]] == [300]
    assert sum(found["offsets"].values()) == 300
    assert not found["promoted"]
    assert json.loads(job.of_home("job", "promote", *both, "--execute", "-o", "json").stdout)["promoted"]
    assert "goes on where this one ended" in job.of_home("run", "--job", "counter", code=2).stderr
    job.fill(50)
    job.of_home("run", "--quiet", "--config", str(clone), "--until-drained")  # its file has the suffix yet
    job.assert_exactly_once(350)
