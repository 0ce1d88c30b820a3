"""The commands of a second version beside the first, as docs/operating.md has them, with Spark."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_both_are_run_to_the_same_offsets_compared_and_swapped(counter_job: Any) -> None:
    job = counter_job
    program = job.command("status")[:-3]

    def grete(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*program, *words], env=job.environment(), capture_output=True, text=True, timeout=patient(120)
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    job.fill(200)
    assert job.run().returncode == 0
    clone = job.config.parent / "counter-2.properties"
    grete("job", "clone", "--job", "counter", "--as", "counter-2", "--to-file", str(clone))
    job.fill(100)
    grete("run", "--quiet", "--config", str(clone), "--until-drained")
    both = ("--job", "counter-2", "--over", "counter")
    grete("job", "compare", *both, code=1)
    found = json.loads(grete("job", "promote", *both, "-o", "json"))
    assert found["equal"]
    assert [one["records"] for one in found["outputs"]] == [300]
    assert sum(found["offsets"].values()) == 300
    assert not found["promoted"]
    assert json.loads(grete("job", "promote", *both, "--execute", "-o", "json"))["promoted"]
    assert "goes on where this one ended" in grete_error(program, job, "run", "--job", "counter")
    job.fill(50)
    grete("run", "--quiet", "--config", str(clone), "--until-drained")  # its file has the suffix yet
    job.assert_exactly_once(350)


def grete_error(program: list[str], job: Any, *words: str) -> str:
    done = subprocess.run(
        [*program, *words], env=job.environment(), capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr
