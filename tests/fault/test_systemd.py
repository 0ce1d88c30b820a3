"""The unit in `docs/production.md`: what systemd says of it, and a job that runs by it, under a real systemd."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.visits_job import JOB, append, behind, running_visits

from grete.cli.main import main
from grete.metadata.history import History
from grete.operations import open_job
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
PAGE = Path(__file__).parents[2] / "docs" / "production.md"
_MOST_EXPOSED = 20
"""Of 100. A service without any of the lines has 96."""
_OWN_TARGETS = ("shutdown", "poweroff", "exit", "reboot", "network-online")
_OWN_ROOT = """
mount --make-rprivate /
mount -t tmpfs none /run
version=$(stat -fc %T /sys/fs/cgroup)
umount -R /sys/fs/cgroup # the machine's own; that of the namespace takes its place
if [ "$version" = cgroup2fs ]; then
  mount -t cgroup2 none /sys/fs/cgroup
else
  mount -t tmpfs none /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
fi
export SYSTEMD_UNIT_PATH={units} SYSTEMD_GENERATOR_PATH=/nonexistent
exec /lib/systemd/systemd --system --log-target=console --unit=begin.target
"""
_HERE = """[Service]
User=root
ProtectHome=no
StateDirectory=
ReadWritePaths={home}
Environment=GRETE_HOME={home}
ExecStart=
ExecStart={python} -m grete.testing.sparkless --job %i
RestartSec=1
"""


def unit() -> str:
    [found] = re.findall(r"```ini\n(\[Unit\].*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return str(found)


def test_systemd_finds_nothing_wrong_with_the_unit_and_little_exposed(tmp_path: Path) -> None:
    file = tmp_path / "grete@.service"
    file.write_text(unit().replace("/opt/grete/bin/grete", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={_MOST_EXPOSED}", file]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout
    file.write_text("[Service]\nExecStart=/bin/true\n")
    assert subprocess.run(command, capture_output=True).returncode != 0, "a judge that can say no"


class Systemd:
    """A systemd that is the first process of a namespace, and knows our units alone."""

    def __init__(self, units: Path, log: Path) -> None:
        for name in _OWN_TARGETS:
            (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        (units / "begin.target").write_text("[Unit]\nDefaultDependencies=no\n")
        begin = units / "begin.sh"
        begin.write_text(_OWN_ROOT.format(units=units))
        apart = ["--pid", "--fork", "--mount-proc", "--uts", "--cgroup", "--kill-child"]
        with log.open("wb") as file:
            self._outer = subprocess.Popen(["unshare", *apart, "sh", str(begin)], stdout=file, stderr=file)
        eventually(lambda: self.tell("is-system-running", "--quiet").returncode in (0, 1), "it is there")

    def tell(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`systemctl` there."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        inside = ["nsenter", "-t", *children[:1], "-m", "-p", "systemctl", *words]
        told = {
            **os.environ,
            "SYSTEMD_IGNORE_CHROOT": "1",
        }  # which it takes a namespace for, and does nothing
        return subprocess.run(inside, capture_output=True, text=True, timeout=60, env=told)

    def shows(self, unit: str, name: str) -> str:
        return self.tell("show", unit, "--property", name, "--value").stdout.strip()

    def end(self) -> None:
        self._outer.kill()
        self._outer.wait()


@pytest.fixture
def systemd(home: Path, tmp_path: Path) -> Iterator[Systemd]:
    units = tmp_path / "units"
    (units / "grete@.service.d").mkdir(parents=True)
    (units / "grete@.service").write_text(unit().replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n"))
    here = _HERE.format(home=home, python=sys.executable)
    (units / "grete@.service.d" / "here.conf").write_text(here)
    running = Systemd(units, tmp_path / "systemd.log")
    yield running
    running.end()


def events() -> list[str]:
    with open_job(JOB) as handle:
        return [row.event for row in History(handle.stream).rows()]


@pytest.mark.nightly  # needs root, and cgroups that it may write
def test_a_job_runs_by_the_unit_and_its_containers_outlive_a_coordinator_that_crashes(
    home: Path, systemd: Systemd
) -> None:
    service = "grete@visits.service"
    with running_visits(home, "a visit") as submitted:
        assert systemd.tell("start", service).returncode == 0
        eventually(lambda: systemd.shows(service, "ActiveState") == "failed", "it runs elsewhere")
        assert (systemd.shows(service, "ExecMainStatus"), systemd.shows(service, "NRestarts")) == ("4", "0")
        assert main(["stop", "--job", JOB.name]) == 0
        submitted.wait(30)
    assert systemd.tell("start", service).returncode == 0
    append(home, "another visit")
    eventually(lambda: behind() == 0, "the unit's job has read it")
    crashed = systemd.shows(service, "MainPID")
    assert systemd.tell("kill", "--kill-whom=main", "--signal=KILL", service).returncode == 0
    eventually(lambda: systemd.shows(service, "MainPID") not in ("0", crashed), "there is another one")
    eventually(lambda: events()[-2:] == ["attempt", "container-adopted"], "it has taken the container over")
    append(home, "one more")
    eventually(lambda: behind() == 0, "the job goes on")
    assert systemd.tell("stop", service).returncode == 0
    assert systemd.shows(service, "Result") == "success"
    assert events()[-3:] == ["stop-requested", "container-exited", "stopped"]
