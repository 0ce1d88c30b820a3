"""The harness that runs all tests: what it says of flakes and hangs, and that a run leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.harness import processes

from grete.testing.waiting import PATIENCE, eventually

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.harness.plugin import (
    pytest_collection_modifyitems,
    pytest_itemcollected,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_timeout_set_timer,
    pytest_xdist_make_scheduler,
)
"""
FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(COUNT))
def test_that_fails_once(number):
    seen = Path(__file__).with_name(f"seen{number}")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen, "for the first time"
"""
LEAVING = """
import subprocess, sys

def test_that_leaves_a_grandchild():
    start = "import subprocess; subprocess.Popen(['sleep', '987'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", start], check=True)
"""
HANGING = """
import subprocess, sys
import pytest

@pytest.mark.timeout(3)
def test_that_hangs():
    subprocess.run([sys.executable, "-c", "def forever():\\n    import time\\n    time.sleep(987)\\nforever()"])
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the harness on a folder with one file of tests. Its report is in that folder."""

    def start_with(text: str, *words: str) -> subprocess.Popen[str]:
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "test_it.py").write_text(text)
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            "-c",
            os.devnull,
            str(tmp_path),
        ]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, "-m", "tests.harness", "--workers", "1", *words, *options],
            cwd=tmp_path,
            env={**os.environ, PATIENCE: "1", "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start_with


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    output = run.communicate(timeout=50)[0]
    return run.returncode, output


def test_what_fails_once_and_passes_alone_is_printed_as_flaky_and_fails_nothing(
    start: Start, tmp_path: Path
) -> None:
    code, output = ended(start(FLAKY.replace("COUNT", "2"), "--again"))
    assert code == 0, output
    assert "FLAKY: 2 failed once and passed alone" in output
    log = (tmp_path / ".test-run" / "flaky.log").read_text()
    assert log.count("test_it.py::test_that_fails_once[") == 2
    assert "for the first time" in log


@pytest.mark.nightly  # the judgement is told by the test above
def test_three_flakes_fail_the_run(start: Start) -> None:
    code, output = ended(start(FLAKY.replace("COUNT", "3"), "--again"))
    assert code == 1
    assert "3 flaky tests are too many" in output


@pytest.mark.nightly  # the judgement is told by the test above
def test_what_fails_twice_fails_the_run(start: Start) -> None:
    code, output = ended(start("def test_it():\n    assert False, 'always'\n", "--again"))
    assert code == 1
    assert "1 failed twice: test_it.py::test_it" in output
    assert "FLAKY" not in output


@pytest.mark.nightly
def test_without_a_second_chance_a_failure_is_one(start: Start) -> None:
    code, output = ended(start(FLAKY.replace("COUNT", "1")))
    assert code == 1, output


def test_a_test_that_hangs_ends_with_the_stacks_of_its_processes(start: Start) -> None:
    code, output = ended(start(HANGING))
    assert code == 1
    assert "Timeout (>3.0s)" in output
    assert "forever (<string>:" in output, "the stack of the child"


def test_what_a_test_leaves_is_ended_with_it_and_named(start: Start, tmp_path: Path) -> None:
    code, output = ended(start(LEAVING))
    assert code == 0, output
    assert "sleep 987" in (tmp_path / ".test-run" / "orphans.tsv").read_text()
    assert "left behind: 0 processes, 0 folders" in output


def test_a_run_that_is_killed_leaves_no_process_and_no_folder(start: Start, tmp_path: Path) -> None:
    started = tmp_path / "started"
    waiting = f"""
import os, subprocess, sys, time
from pathlib import Path

def test_that_is_killed():
    child = subprocess.Popen(["sleep", "987"], start_new_session=True)
    Path({str(started)!r}).write_text(f"{{os.environ['GRETE_TEST_RUN']}} {{os.environ['TMPDIR']}}")
    time.sleep(987)
"""
    run = start(waiting)
    eventually(lambda: started.exists() and started.read_text(), "the start of the test")
    name, temporary = started.read_text().split(" ", 1)
    assert processes.of_run(name)
    run.send_signal(signal.SIGKILL)
    run.wait()
    eventually(lambda: not processes.of_run(name), "the end of its processes")
    eventually(lambda: not Path(temporary).parent.exists(), "the end of its folder")


GROUPED = """
import os
from pathlib import Path
from types import SimpleNamespace
import pytest

from tests.harness.servers import shared

class Broker:
    is_running = True
    nodes = (SimpleNamespace(number=1),)

    def __init__(self, directory, outlives_us):
        pass

    def kill(self, number):
        used = Path(__file__).with_name("workers").read_text().splitlines()
        Path(__file__).with_name("ended").write_text(str(len(used)))

@pytest.fixture(scope="session")
def harmed_broker():
    with shared("harmed_broker", Broker, None) as broker:
        yield broker

@pytest.mark.parametrize("number", range(8))
def test_that_harms_a_broker(harmed_broker, number):
    with Path(__file__).with_name("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")

@pytest.mark.parametrize("number", range(8))
def test_that_does_not(number):
    pass
"""


@pytest.mark.nightly  # a broker of its own; any run would fail without
def test_tests_that_harm_the_same_broker_come_to_one_worker_and_it_ends_with_the_last(
    start: Start, tmp_path: Path
) -> None:
    code, output = ended(start(GROUPED, "--workers", "2"))
    assert code == 0, output
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1
    assert (tmp_path / "ended").read_text() == "8"


JVM = """
import shutil, subprocess

def test_that_starts_a_program_of_this_name(tmp_path):
    java = tmp_path / "java"
    java.symlink_to(shutil.which("sleep"))
    subprocess.run([str(java), "2.5"], check=True)
"""


@pytest.mark.nightly  # every run says it
def test_a_run_says_how_many_jvms_it_started(start: Start) -> None:
    code, output = ended(start(JVM))
    assert code == 0, output
    assert "started 1 JVMs (0 Spark, 0 brokers, 0 real Samza, 1 others)" in output


COMPUTING = """
import subprocess, sys

CODE = "import time; began = time.process_time()\\nwhile time.process_time() < began + 0.5: pass"

def test_that_lets_another_compute():
    subprocess.run([sys.executable, "-c", CODE], check=True)

def test_that_starts_python_where_it_may_write_what_it_compiles():
    command = [sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)"]
    subprocess.run(command, check=True)
"""


def test_a_run_says_what_tests_computed_and_compiles_once_what_its_processes_import(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code, output = ended(start(COMPUTING))
    assert code == 0, output
    lines = [line.split("\t") for line in (tmp_path / ".test-run" / "durations.tsv").read_text().splitlines()]
    [computed_s] = [float(each[3]) for each in lines if each[1] == "call" and "another_compute" in each[2]]
    assert 0.5 <= computed_s < 5


TWO_SERVERS = """
import pytest

@pytest.fixture
def harmed_broker():
    pass

@pytest.fixture
def azurite():
    pass

def test_with_both(harmed_broker, azurite):
    pass
"""


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_test_that_needs_the_servers_of_two_groups_is_refused(start: Start, workers: str) -> None:
    """One such test ended the server of 77 others under them."""
    code, output = ended(start(TWO_SERVERS, "--workers", workers))
    assert code != 0, output
    assert "give the test a server of its own" in output


ON_KUBERNETES = """
import pytest

@pytest.fixture
def kubernetes():
    pass

@pytest.mark.every_run
def test_of_every_run(kubernetes):
    pass

def test_of_the_night(kubernetes):
    pass

def test_elsewhere():
    pass
"""


@pytest.mark.parametrize(("is_built", "said"), [(True, "2 passed"), (False, "1 passed")])
def test_of_the_tests_on_kubernetes_those_of_every_run_run_where_its_server_is_built(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_built: bool, said: str
) -> None:
    monkeypatch.setenv("GRETE_KUBE_APISERVER", str(tmp_path))
    if is_built:
        (tmp_path / "kube-apiserver").touch()
    code, text = ended(start(ON_KUBERNETES, "-m", "not nightly"))
    assert code == 0, text
    assert said in text


def test_lease_fencing_contenders_and_credentials_on_kubernetes_are_of_every_run(tmp_path: Path) -> None:
    (tmp_path / "kube-apiserver").touch()
    files = ["tests/conformance/test_kubernetes.py", "tests/fault/test_kubernetes_coordination_faults.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not nightly", *files],
        env={**os.environ, "GRETE_KUBE_APISERVER": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    collected = {line.rpartition("::")[2] for line in done.stdout.splitlines()}
    assert {
        "test_a_holder_that_renews_is_never_succeeded",
        "test_a_holder_that_hangs_is_succeeded_after_a_ttl_and_not_before",
        "test_a_second_one_is_refused_with_the_holders_name",
        "test_of_many_who_campaign_at_once_one_leads",
        "test_a_writer_that_has_read_an_older_lease_is_refused",
        "test_an_election_has_the_credentials_of_a_program_which_is_asked_again_when_the_server_refuses_them",
    } <= collected
