"""The demo's job inherited-delays, with its own configuration, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

FLIGHTS = Path(__file__).parents[3] / "examples" / "flights"
sys.path.insert(0, str(FLIGHTS))
HOUR_MS = 3_600_000


def flight(hour: int, *, late_min: int, arrived_late_min: int = 0, origin: str = "JFK") -> dict[str, Any]:
    return {
        "carrier": "DL",
        "flight": hour,
        "origin": origin,
        "dest": "LAX",
        "year": 2013,
        "month": 7,
        "day": 4,
        "hour": hour,
        "minute": 0,
        "dep_time": hour * 100 + late_min,
        "dep_delay": late_min,
        "arr_delay": arrived_late_min,
    }


def fly(job: JobUnderTest, tail: str | None, *flights: dict[str, Any]) -> None:
    for one in flights:
        job.send("local.flights", one, key=tail, timestamp_ms=one["hour"] * HOUR_MS)


def test_a_delay_goes_from_flight_to_flight_of_one_aircraft_across_a_lost_host(start_job: StartJob) -> None:
    job = start_job(config_files=[FLIGHTS / "inherited-delays.properties"], partitions={"local.flights": 8})
    fly(job, "N1", flight(8, late_min=20, arrived_late_min=30))
    fly(job, "N2", flight(9, late_min=0, arrived_late_min=0))
    job.run()
    job.restart(lose_stores=True)
    fly(job, "N1", flight(12, late_min=40, arrived_late_min=0))
    fly(job, "N2", flight(13, late_min=40))
    fly(job, None, flight(14, late_min=40))
    assert job.run().records == 3
    reports = {out["flight"]: out for out in job.messages("local.inherited-delays")}
    assert (reports["DL12"]["inherited"], reports["DL12"]["chain"], reports["DL12"]["chain_min"]) == (
        True,
        2,
        60,
    )
    assert reports["DL12"]["chain_from"] == "2013-07-04 08:00"
    assert (reports["DL13"]["inherited"], reports["DL14"]["inherited"]) == (False, False)
    stores = [job.store("aircraft", task) for task in job.model.tasks]
    assert {tail: state["flights"] for store in stores for tail, state in store.items()} == {"N1": 2, "N2": 2}
