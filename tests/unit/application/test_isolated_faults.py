"""Applications with a process of their own that misbehave: they are named, and harm nobody else."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.isolated_application import CONFIG, Start, answer, sent
from tests.support.isolated_application import start as start

from grete.application.beside import ApplicationProcess
from grete.config.settings import Settings
from grete.errors import ApplicationError, ApplicationGone, ConfigError, ProcessingError
from grete.tasks.isolated.worker import minimal_hello


def test_a_print_goes_to_the_log_and_not_into_the_pipe(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = "print('out', flush=True); os.write(1, b'raw\\n'); os.system('echo shell'); return count"
    job = start(answer(body, imports="import os"))
    assert sent(job, "a", "a") == [1, 2]
    job.kill()
    for line in ("out", "raw", "shell"):
        assert caplog.messages.count(line) == 2


def test_a_patched_json_is_patched_for_the_application_alone(start: Start) -> None:
    imports = "import json, struct; json.dumps = json.loads = json.JSONEncoder.encode = struct.unpack = None"
    assert sent(start(answer("return count", imports=imports)), "a", "a") == [1, 2]


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ("import os; print('I give up', flush=True); os._exit(3)", r"exit code 3 during 'hello'.*I give up"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_package", "no module 'no_such_package'"),
    ],
)
def test_an_import_that_ends_the_process_is_named(start: Start, imports: str, said: str) -> None:
    with pytest.raises((ApplicationError, ConfigError), match=f"(?s){said}"):
        sent(start(answer("return count", imports=imports)), "k")


def test_an_import_that_hangs_is_named(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import time; print('so tired', flush=True); time.sleep(1000)")
    hanging = ApplicationProcess(sys.executable, str(tmp_path), shown="hanging:Task", start_s=2.0)
    with pytest.raises(ApplicationError, match=r"(?s)hanging:Task .* was not imported within 2 s.*so tired"):
        hanging.load(
            minimal_hello(Settings.of(CONFIG), "hanging:Task"), lambda verb, value, blobs: (None, ())
        )
    hanging.close()


def test_a_process_that_ends_in_the_middle_costs_its_batch_alone(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    body = f"return count if os.path.exists({str(mark)!r}) else os.kill(os.getpid(), 9)"
    job = start(answer(body, imports="import os"))
    with pytest.raises(ApplicationGone, match="signal SIGKILL during 'process'"):
        sent(job, "a", "a")
    mark.touch()
    job.restart()
    job.run()
    assert job.messages("local.out") == [1, 2]


def test_a_fork_that_comes_back_does_not_write_into_the_pipe(start: Start) -> None:
    body = "pid = os.fork(); _ = pid and os.waitpid(pid, 0); return count"
    assert sent(start(answer(body, imports="import os")), "a", "a", "a") == [1, 2, 3]


def test_an_error_has_the_applications_traceback(start: Start) -> None:
    job = start(answer("raise LookupError('nothing here')"))
    with pytest.raises(
        ProcessingError, match=r"local\.in\.0 offset 0.*LookupError\('nothing here'\)"
    ) as raised:
        sent(job, "k")
    cause = raised.value.__cause__
    assert isinstance(cause, LookupError)
    assert any("counting.py" in note and "in answer" in note for note in cause.__notes__)


def test_an_exit_that_the_application_calls_is_a_failure_of_its_message(start: Start) -> None:
    job = start(answer("sys.exit(0)", imports="import sys"))
    with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 0.*SystemExit\(0\)"):
        sent(job, "k")


def test_the_process_ends_with_its_worker() -> None:
    script = (
        "import sys, time\n"
        "from grete.application.beside import ApplicationProcess\n"
        "print(ApplicationProcess(sys.executable, None).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    deadline = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < deadline, "it lives on"


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
