"""`grete store export|import`: the state of one job's store becomes another's, whole, or it is said why not."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.fault.job_on_kafka import KEYS, job_on
from tests.support.counter_job import COUNTER, COUNTER_PROPERTIES, CounterJob, make_job

from grete.application.expiry import stamp
from grete.clock import SystemClock
from grete.operations import store_transfer
from grete.tasks.stores.file import StoreFile
from grete.testing.kafka_broker import KafkaCluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
MakeCounter = Callable[..., CounterJob]


@pytest.fixture
def make(tmp_path: Path) -> MakeCounter:
    """A job in a home of its own that has counted so many records."""

    def made(name: str, records: int, **settings: str) -> CounterJob:
        job = make_job(tmp_path / name, COUNTER, COUNTER_PROPERTIES)
        job.configure({key.replace("_", "."): value for key, value in settings.items()})
        count(job, records)
        return job

    return made


def count(job: CounterJob, records: int) -> None:
    job.fill(records)
    ran = job.run(spark=False)
    assert ran.returncode == 0, ran.stderr


def answer(job: CounterJob, *words: str) -> Any:
    done = job.grete(*words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ttl", [{}, {"stores_counts_rocksdb_ttl_ms": "3600000"}], ids=["", "expiring"])
def test_a_job_counts_on_from_the_state_of_another(
    make: MakeCounter, tmp_path: Path, ttl: dict[str, str]
) -> None:
    one, other = make("one", 500, **ttl), make("other", 0, **ttl)
    folder = tmp_path / "exported"
    exported = answer(one, "store", "export", "counts", "--to", str(folder))
    assert sum(task["entries"] for task in exported["tasks"]) == 50
    planned = answer(other, "store", "import", "counts", "--from", str(folder))
    assert (planned["executed"], sum(task["entries"] for task in planned["tasks"])) == (False, 50)
    count(other, 50)
    assert {tuple(counts) for counts in other.counts().values()} == {(1,)}, "nothing was written yet"
    assert answer(other, "store", "import", "counts", "--from", str(folder), "--execute")["executed"]
    count(other, 100)
    assert {tuple(counts) for counts in other.counts().values()} == {(1, 11, 12)}


def test_what_was_not_exported_is_gone_and_an_import_that_was_killed_is_done_again(
    make: MakeCounter, tmp_path: Path
) -> None:
    few, many = make("few", 10), make("many", 200)
    folder = str(tmp_path / "exported")
    assert few.grete("store", "export", "counts", "--to", folder).returncode == 0
    words = ["store", "import", "counts", "--from", folder, "--execute"]
    killed = many.grete(*words, GRETE_FAILPOINT="transfer.imported:kill")
    assert killed.returncode == -signal.SIGKILL
    done = answer(many, *words)
    assert sum(task["entries"] for task in done["tasks"]) == 10
    assert 0 < sum(task["deletions"] for task in done["tasks"]) < 40, "one task's were written before"
    count(many, 50)
    last = {key: counts[-1] for key, counts in many.counts().items()}
    assert last == {f"key{number}": 2 if number < 10 else 1 for number in range(50)}


def test_an_export_that_was_killed_or_is_damaged_is_never_imported(make: MakeCounter, tmp_path: Path) -> None:
    one = make("one", 100)
    half, whole = tmp_path / "half", tmp_path / "whole"
    killed = one.grete(
        "store", "export", "counts", "--to", str(half), GRETE_FAILPOINT="transfer.exported:kill"
    )
    assert killed.returncode == -signal.SIGKILL
    refused = one.grete("store", "import", "counts", "--from", str(half), "--execute")
    assert (refused.returncode, "did not come to its end" in refused.stderr) == (2, True)
    assert one.grete("store", "export", "counts", "--to", str(whole)).returncode == 0
    refused = one.grete("store", "export", "counts", "--to", str(whole))
    assert (refused.returncode, "there is something in it already" in refused.stderr) == (2, True)
    [file, *_] = sorted(whole.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:-9] + b"otherwise")
    refused = one.grete("store", "import", "counts", "--from", str(whole), "--execute")
    assert (refused.returncode, "missing or damaged" in refused.stderr) == (2, True)


def test_a_store_that_it_does_not_fit_is_refused(make: MakeCounter, tmp_path: Path) -> None:
    one, folder = make("one", 100), str(tmp_path / "exported")
    assert one.grete("store", "export", "counts", "--to", folder).returncode == 0
    other = make("other", 0, stores_counts_msg_serde="string")
    refused = other.grete("store", "import", "counts", "--from", folder)
    assert (refused.returncode, "would be read as something else" in refused.stderr) == (2, True)
    expiring = make("expiring", 0, stores_counts_rocksdb_ttl_ms="3600000")
    refused = expiring.grete("store", "import", "counts", "--from", folder)
    assert (refused.returncode, "entries of one of the two stores expire" in refused.stderr) == (2, True)
    refused = one.grete("store", "import", "count", "--from", folder)
    assert (refused.returncode, "the job has no store 'count'" in refused.stderr) == (2, True)


@pytest.mark.parametrize("have_times", [True, False])
def test_an_old_entry_gets_no_new_life_where_entries_expire(have_times: bool, tmp_path: Path) -> None:
    """One without a time has expired; where none do, no entry has a time."""
    path, now_ms = tmp_path / "partition-0.arrow", SystemClock().wall_ms()
    with closing(StoreFile(tmp_path / "store.db", "changelog", ttl_ms=None)) as store:
        value = stamp(0) + b"1" if have_times else b"1"
        store.settle(1, "", lambda first, last: [(b"k", value)], lambda packed: ())
        assert store_transfer._write(path, store, now_ms if have_times else None) == 1
    keys, values, [time_ms] = store_transfer._rows(path, have_times=have_times)
    assert (keys, values) == ([b"k"], [b"1"])
    assert time_ms == 0 if have_times else time_ms >= now_ms


def test_on_kafka_a_job_goes_back_to_what_was_exported_and_not_while_it_runs(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grete.cli.main import main

    with job_on(kafka, tmp_path / "job", monkeypatch) as job:
        folder, named = str(tmp_path / "exported"), ["--job", job.id.name]
        job.submit()
        job.send(100)
        job.await_counted()
        assert main(["store", "export", "counts", "--to", folder, *named]) == 0
        job.send(100)
        job.await_counted()
        assert main(["store", "import", "counts", "--from", folder, "--execute", *named]) == 4
        assert "stop it first" in capsys.readouterr().err
        job.stop()
        assert main(["store", "import", "counts", "--from", folder, "--execute", *named]) == 0
        job.run_again()
        job.send(KEYS)
        job.await_counted()
        last = {one.key: one.value["count"] for one in job.written()}
        assert set(last.values()) == {100 // KEYS + 1}
