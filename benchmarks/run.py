"""`make bench`: every figure, in one run, printed and kept in benchmarks/results/."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime

from benchmarks import RESULTS, data_plane, http_job_model, isolation, job_model, log, operate, start


def main() -> None:
    """Measure, print, keep."""
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average_before": round(os.getloadavg()[0], 1),  # far above 1: something else ran beside it
        "log": log.run(),
        "job_model": job_model.run(),
        "http_job_model": http_job_model.run(),
        "operate": operate.run(),
        "start": start.run(),
        "isolation": isolation.run(200_000, 3),
        "data_plane": data_plane.run(),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{str(figures['when']).replace(':', '')}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
