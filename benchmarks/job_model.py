"""The job model of 100,000 tasks: calculated and serialised."""

from __future__ import annotations

import json
import time

from grete.config.settings import Settings
from grete.coordinator.job_model import Remembered, calculate
from grete.model.ids import SystemStream
from grete.wire import job_coordinator_metadata, job_model_json


def run(tasks: int = 100_000) -> dict[str, float]:
    """Seconds for each step; the CPU time of all of them, which other processes disturb less."""
    config = {"job.name": "bench", "task.inputs": "kafka.in", "job.container.count": "100"}
    cpu, started = time.process_time(), time.monotonic()
    calculated = calculate(Settings.of(config), {SystemStream("kafka", "in"): tasks}, Remembered())
    calculated_s = time.monotonic() - started
    document = job_model_json.encode(calculated.model)
    serialised_s = time.monotonic() - started - calculated_s
    job_coordinator_metadata.job_model_id(calculated.model)
    with_id_s = time.monotonic() - started
    return {
        "tasks": tasks,
        "calculate_s": round(calculated_s, 2),
        "serialise_s": round(serialised_s, 2),
        "all_with_id_s": round(with_id_s, 2),
        "all_with_id_cpu_s": round(time.process_time() - cpu, 2),
        "bytes": len(document),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
