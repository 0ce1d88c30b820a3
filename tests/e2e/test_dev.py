"""`grete dev` as its user has it: a job that goes on over saves, mistakes and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.testing.waiting import eventually, patient

GRETE = (sys.executable, "-m", "grete.cli.main")


class Author:
    """Somebody who edits a project while `grete dev` runs in another terminal."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "GRETE_HOME": str(home)}
        self._said = home.with_name("said")
        self._read = 0

    @contextmanager
    def dev(self, *words: str) -> Iterator[None]:
        with self._said.open("w") as out:
            process = subprocess.Popen(
                [*GRETE, "dev", *words], cwd=self._folder, env=self._environment, stdout=out, stderr=out
            )
            self._read = 0
            try:
                yield
                process.send_signal(signal.SIGINT)
                assert process.wait(patient(60)) == 0, self._said.read_text()
            finally:
                process.kill()
                process.wait()
        assert "Traceback" not in self._said.read_text()

    def sees(self, pattern: str, within_s: float = 60) -> None:
        """This comes, after what was seen before."""

        def is_there() -> bool:
            text = self._said.read_text()
            found = re.compile(pattern).search(text, self._read)
            if found:
                self._read = found.end()
            return found is not None

        eventually(is_there, f"{pattern!r} is said", within_s=within_s, context=self._said.read_text)

    def sends(self, *lines: str) -> None:
        words = ("stream", "append", "local.readings", "--lines")
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run([*GRETE, *words], input=text, env=self._environment, text=True, check=True)

    def jvm(self) -> int:
        """The process of the JVM that is kept."""
        [place] = Path(self._environment["GRETE_HOME"]).glob("jobs/*/warm-jvm.json")
        return int(json.loads(place.read_text())["pid"])

    def received(self, stream: str) -> list[float]:
        """What was measured in the records of a stream; those of the sample file sorted."""
        dump = [*GRETE, "stream", "dump", stream]
        said = subprocess.run(dump, env=self._environment, capture_output=True, text=True, check=True).stdout
        found = [json.loads(line)["value"]["celsius"] for line in said.splitlines()]
        return [*sorted(found[:3]), *found[3:]]

    def saves(self, file: str, before: str, after: str) -> None:
        path = self._folder / file
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))


@pytest.fixture
def author(tmp_path: Path, request: pytest.FixtureRequest) -> Author:
    folder = tmp_path / "rooms"
    assert main(["init", str(folder), "--kind", request.param, "--system", "local"]) == 0
    return Author(folder, tmp_path / "home")


@pytest.mark.parametrize("author", ["task"], indirect=True)
@pytest.mark.timeout(240)
def test_a_task_goes_on_with_its_state_over_saves_and_mistakes(author: Author) -> None:
    with author.dev():
        author.sees(
            r"local\.readings: created with one partition, and filled with the 5 lines of readings\.jsonl"
        )
        author.sees("at work after")
        author.sees(r"/ui/sign-in\?code=")
        author.sends('{"sensor": "pump", "celsius": 95.0}', '{"sensor": "pump", "celsius": 20.0}')
        author.sees(r'local\.alarms  pump  \{"celsius": 95\.0, "count": 2\}')
        author.saves("rooms.py", "LIMIT_CELSIUS = 90.0", "LIMIT_CELSIUS = 10.0")
        author.sees(r"rooms\.py saved: restarting")
        author.sees("at work after")
        author.sends('{"sensor": "pump", "celsius": 20.0}')
        author.sees(r'pump  \{"celsius": 20\.0, "count": 3\}')

        author.saves("rooms.py", "import grete", "import grete(")
        author.sees("SyntaxError")
        author.sees("waiting for a change")
        author.saves("rooms.py", "import grete(", "import grete")
        author.sees("at work after")

        author.sends('{"sensor": "pump"}')
        author.sees(r"KeyError 'celsius' \(rooms\.py:\d+\) at local\.readings\.0 offset 8")
        author.sees("waiting for a change")
        author.saves("rooms.py", 'reading["celsius"] <=', 'reading.get("celsius", 0) <=')
        author.sees("at work after")

        author.saves("rooms.properties", "task.outputs=local.alarms", "task.outputs=local.alarm s")
        author.sees("waiting for a change")
        author.saves("rooms.properties", "task.outputs=local.alarm s", "task.outputs=local.alarms")
        author.sees("at work after")
        author.sends('{"sensor": "pump", "celsius": 30.0}')
        author.sees(r'pump  \{"celsius": 30\.0, "count": 4\}')
    with author.dev("--fresh"):
        author.sees(r'pump  \{"celsius": 30\.0, "count": 6\}')


@pytest.mark.nightly  # 30 s; a task goes on over saves in every run
@pytest.mark.spark
@pytest.mark.parametrize("author", ["pipeline"], indirect=True)
@pytest.mark.timeout(300)
def test_a_pipeline_goes_on_over_a_save_in_the_same_jvm_and_in_another_when_that_has_died(
    author: Author,
) -> None:
    with author.dev():
        author.sees("at work after")
        author.sees(r'pump  \{"celsius": 93\.2\}')
        jvm = author.jvm()
        author.saves("rooms.py", "LIMIT_CELSIUS = 90.0", "LIMIT_CELSIUS = 10.0")
        author.sees("at work after")
        author.sends('{"sensor": "pump", "celsius": 30.0}')
        author.sees(r'pump  \{"celsius": 30\.0\}')
        assert author.jvm() == jvm

        os.kill(jvm, signal.SIGKILL)
        author.sees("waiting for a change")
        author.sends('{"sensor": "pump", "celsius": 40.0}')
        author.saves("rooms.py", "LIMIT_CELSIUS = 10.0", "LIMIT_CELSIUS = 11.0")
        author.sees(r'pump  \{"celsius": 40\.0\}')
        last = author.jvm()
        assert last != jvm
    assert not Path(f"/proc/{last}").exists()
    assert author.received("local.alarms") == [93.2, 96.0, 99.1, 30.0, 40.0]
