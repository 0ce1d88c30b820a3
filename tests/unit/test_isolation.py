"""Applications with a process and an environment of their own: nothing of theirs reaches the framework."""

from __future__ import annotations

import ast
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import grete
from grete.application.beside import ApplicationProcess
from grete.application.start import API
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.log_levels import log_levels
from grete.config.rules.validate import validate
from grete.errors import ApplicationError, ApplicationGone, ConfigError, IllegalStateError, ProcessingError
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.isolated.worker import minimal_hello
from grete.testing.job import JobUnderTest
from grete.testing.waiting import patient

CONFIG = {
    "job.split.deployment.enabled": "true",
    "task.class": "counting:Counter",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
}
COUNTER = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.context = context

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", self.answer(count), key=envelope.key)

    def answer(self, count):
        return count
"""

ORJSON = """
import json
__version__ = "0.1"
loads = json.loads

def dumps(value):
    return json.dumps(value).encode()
"""
Start = Callable[..., JobUnderTest]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a job whose application is the text."""
    started: list[JobUnderTest] = []

    def start(text: str = COUNTER, *, without: str = "", **config: str) -> JobUnderTest:
        folder = tmp_path / "application"
        folder.mkdir(exist_ok=True)
        (folder / "counting.py").write_text(text)
        more = {name.replace("__", "."): value for name, value in config.items()}
        whole = {**CONFIG, "job.application.path": str(folder), **more}
        whole.pop(without, None)
        job = JobUnderTest(config=whole)
        started.append(job)
        return job.start()

    yield start
    for job in started:
        job.close()


def answer(body: str, *, imports: str = "") -> str:
    """The application with another answer."""
    return f"{imports}\n{COUNTER}".replace("        return count\n", f"        {body}\n")


def sent(job: JobUnderTest, *keys: str) -> list[Any]:
    """Process a message of each key; the messages sent for it."""
    for key in keys:
        job.send("local.in", 1, key=key)
    job.run()
    return job.messages("local.out")


# --- environments ---


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with other versions of the framework's packages, which would break it."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in ("apsw", "pyarrow", "msgspec", "confluent_kafka"):
        (packages / f"{name}.py").write_text('__version__ = "0.1"\n')
    (packages / "orjson.py").write_text(ORJSON)
    return folder


def test_an_application_has_its_own_versions_of_the_frameworks_packages(
    start: Start, environment: Path
) -> None:
    import orjson

    body = "return [orjson.__version__, apsw.__version__, msgspec.__version__, sys.prefix]"
    text = answer(body, imports="import sys, orjson, apsw, msgspec")
    job = start(text, job__application__environment=str(environment))
    assert sent(job, "k") == [["0.1", "0.1", "0.1", str(environment)]]
    assert orjson.__version__ != "0.1"
    assert sys.prefix != str(environment)


def test_an_environment_needs_no_package_at_all(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    job = start(job__application__environment=str(folder))
    assert sent(job, "a", "b", "a") == [1, 1, 2]


def test_an_environment_without_an_interpreter_is_named(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.application\.environment: there is no .*nowhere/bin/python"):
        sent(start(job__application__environment=str(tmp_path / "nowhere")), "k")


def test_the_application_is_imported_in_its_own_process_alone(start: Start, tmp_path: Path) -> None:
    job = start(answer("return os.getpid()", imports="import os"))
    [pid] = set(sent(job, "a", "b"))
    assert pid != os.getpid()
    assert "counting" not in sys.modules
    assert str(tmp_path / "application") not in sys.path


def test_pythonpath_and_the_frameworks_variables_stay_outside(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "GRETE_EXECUTOR_SECRETS", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, "here")
    names = "('PYTHONPATH', 'PYSPARK_PYTHON', 'GRETE_EXECUTOR_SECRETS', 'SOMETHING_ELSE')"
    job = start(answer(f"return [os.environ.get(name) for name in {names}]", imports="import os"))
    assert sent(job, "k") == [[None, None, None, "here"]]


def test_the_doctor_finds_an_application_in_its_environment(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "installed_there.py").touch()
    keys = {
        "job.name": "a",
        "task.class": "installed_there:Task",
        "job.application.environment": str(environment),
    }
    config = {**CONFIG, **keys}
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    main(["doctor", "-o", "json", "--config", str(tmp_path / "job.properties")])
    findings = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert findings["application"]["ok"], findings


# --- the modules of the API ---


def test_modules_of_the_framework_cannot_be_imported_there(start: Start) -> None:
    job = start(
        answer("return [name for name in sys.modules if name.startswith('grete')]", imports="import sys")
    )
    [names] = sent(job, "k")
    assert set(names) <= {*API}
    with pytest.raises(ConfigError, match=r"grete\.kafka"):
        sent(start("import grete.kafka\n" + COUNTER), "k")


def test_a_module_named_like_one_of_the_frameworks_is_the_applications(start: Start, tmp_path: Path) -> None:
    (tmp_path / "application" / "grete").mkdir(parents=True)
    (tmp_path / "application" / "grete" / "wire.py").write_text("ANSWER = 'my own wire'\n")
    job = start(answer("return grete.wire.ANSWER", imports="import grete.wire"))
    assert sent(job, "k") == ["my own wire"]


def test_a_module_named_like_one_of_the_apis_is_not_the_applications(start: Start, tmp_path: Path) -> None:
    """The API comes first, so both sides mean the same by its classes; its errors are the same when they cross."""
    (tmp_path / "application" / "grete").mkdir(parents=True)
    for name in ("__init__", "api", "errors"):
        (tmp_path / "application" / "grete" / f"{name}.py").write_text("raise ImportError('not this one')\n")
    body = "raise grete.errors.IllegalStateError(grete.api.__file__)"
    with pytest.raises(IllegalStateError) as raised:
        sent(start(answer(body, imports="import grete.errors")), "k")
    assert str(raised.value) == grete.api.__file__


def test_what_the_application_changes_in_a_module_of_the_api_changes_in_its_process_alone(
    start: Start,
) -> None:
    imports = "import grete.api; grete.api.count = 0"
    body = "grete.api.count += 1; grete.api.StreamTask.marked = grete.errors = None; return grete.api.count"
    assert sent(start(answer(body, imports=imports)), "a", "b") == [1, 2]
    assert not hasattr(grete.api, "count")
    assert not hasattr(grete.api.StreamTask, "marked")
    assert grete.errors is not None


def test_modules_are_what_lies_in_the_folder_itself(start: Start, tmp_path: Path) -> None:
    """No modules in folders below it, nothing that a .pth file names, and no other files."""
    outside, folder = tmp_path / "outside", tmp_path / "application"
    for place in (outside, folder / "below"):
        place.mkdir(parents=True)
        (place / f"of_{place.name}.py").write_text("A = 1\n")
    (folder / "own.pth").write_text(f"{outside}\n")
    (folder / "beside.py").write_text("A = 1\n")
    (folder / "beside_text.txt").write_text("A = 1\n")
    names = ["beside", "of_below", "of_outside", "beside_text", "below.of_below"]
    text = f"return [find_spec(name) is not None for name in {names!r}]"
    job = start(answer(text, imports="from importlib.util import find_spec"))
    assert sent(job, "k") == [[True, False, False, False, True]]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_folder_of_modules_that_is_none_is_named(start: Start, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    with pytest.raises(ConfigError, match=rf"job\.application\.path: there is no folder .*{kind}"):
        sent(start(job__application__path=str(path)), "k")


@pytest.mark.parametrize("name", ["../outside:Task", "..outside:Task", "/outside:Task"])
def test_a_class_cannot_be_named_outside_of_the_folder(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.py").write_text(COUNTER.replace("Counter", "Task"))
    with pytest.raises((ConfigError, ApplicationError), match=r"task\.class"):
        sent(start(task__class=name), "k")


def test_the_api_needs_nothing_but_the_standard_library() -> None:
    """Each module of the list imports the list and the standard library; `orjson` is optional."""
    package = Path(grete.__file__).parent
    outside = set()
    for name in API:
        place = package.joinpath(*name.split(".")[1:])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        for imported in _imports(ast.parse(file.read_text())):
            top = imported.partition(".")[0]
            if (top == "grete" and imported not in API) or (
                top != "grete" and top not in sys.stdlib_module_names
            ):
                outside.add(imported)
    assert outside == {"orjson"}


def _imports(node: ast.AST) -> Iterator[str]:
    """Modules that are imported when a module is, or its functions are called; not those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef) and child.name == "__getattr__":
            continue  # grete's own, of embedded mode
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (name if name in API else str(child.module) for name in names)
        yield from _imports(child)


# --- applications that misbehave ---


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
        hanging.load(minimal_hello(CONFIG, "hanging:Task"), lambda verb, value, blobs: (None, ()))
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


def test_coordinator_and_container_never_import_the_application(tmp_path: Path) -> None:
    """A whole job in processes of its own, whose application notes in which of them it is imported."""
    (tmp_path / "application").mkdir()
    noting = "import sys; print(sys.orig_argv[1:3], file=open('imported', 'a'))"
    (tmp_path / "application" / "counting.py").write_text(answer("return count", imports=noting))
    run_to_its_end(tmp_path, os.environ)
    [imported] = set((tmp_path / "application" / "imported").read_text().splitlines())
    assert imported == str(["-I", str(Path(grete.__file__).parent / "application" / "start.py")])
    with closing(LocalSystem(tmp_path / "home" / "local", SystemClock())) as system:
        assert [batch.num_rows for _, batch in system.read("out", 0, 0)] == [1]


# --- logs ---

CHATTY = """
import logging
own, other = logging.getLogger("my.module"), logging.getLogger("my.other")
own.debug("own debug")
own.info("own %s", "info")
other.info("other info")
own.error("own error")
print("printed")
"""


@pytest.mark.parametrize(
    ("explicit", "file", "said"),
    [
        (None, None, ["own info", "other info", "own error"]),
        (
            None,
            'level = "WARNING"\n[loggers]\n"my.module" = "DEBUG"\n',
            ["own debug", "own info", "own error"],
        ),
        ("ERROR", 'level = "DEBUG"\n', ["own error"]),
    ],
    ids=["frameworks-default", "applications-file", "explicit-setting"],
)
def test_one_file_has_the_lines_of_framework_and_application_as_the_first_of_three_asks_for(
    tmp_path: Path, explicit: str | None, file: str | None, said: list[str]
) -> None:
    """What is set explicitly, the application's file, the framework's default."""
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "counting.py").write_text(answer("return count", imports=CHATTY))
    if file is not None:
        (tmp_path / "application" / "logging.toml").write_text(file)
    environment = {name: value for name, value in os.environ.items() if name != "GRETE_LOG_LEVEL"}
    if explicit is not None:
        environment["GRETE_LOG_LEVEL"] = explicit
    lines = run_to_its_end(tmp_path, environment)
    of_application = [line for line in lines if " my." in line]
    assert [
        line.partition(" my.")[2].split(" ", 1)[1] for line in of_application
    ] == said * 2  # looked at, and run
    if explicit is None and file is None:
        assert any(" INFO grete." in line for line in lines)
        assert any(line.endswith("INFO grete.application.output printed") for line in lines)


def run_to_its_end(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Lines that the container of a job has logged which reads one message; its application is in the folder."""
    config = {**CONFIG, "job.name": "told", "job.application.path": "application"}
    (folder / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    with closing(LocalSystem(folder / "home" / "local", SystemClock())) as system:
        system.create_stream(StreamSpec("in", 1))
        system.append("in", [Message(b"k", b"1", 1)])
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config", "job.properties"],
        cwd=folder,
        env={**environment, "GRETE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 0, done.stderr
    [log] = folder.glob("home/**/container-0.log")
    return log.read_text().splitlines()


def test_an_application_that_sets_its_own_logging_up_leaves_the_frameworks_handlers_alone(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The framework's, such as the one that writes the job's log stream, still get the application's records."""
    caplog.set_level(logging.INFO)
    before = list(logging.getLogger().handlers)
    imports = "import logging; own = logging.getLogger('my.module'); own.addHandler(logging.NullHandler())"
    job = start(answer("own.warning('x %d', count); return count", imports=imports))
    assert sent(job, "a") == [1]
    job.kill()
    assert ("my.module", logging.WARNING, "x 1") in caplog.record_tuples
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("level = [", "logging.toml cannot be read"),
        ('level = "LOUD"', "level is no level; it may have"),
        ('handlers = "mine:Handler"', "handlers is no level; it may have"),
        ('[loggers]\n"a" = "loud"', "a is no level; it may have"),
    ],
)
def test_a_logging_file_says_levels_and_nothing_that_would_be_loaded(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "logging.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        log_levels(str(tmp_path))


# --- versions ---


def test_an_application_made_for_another_grete_is_named_at_its_start_and_by_the_doctor(
    start: Start,
    environment: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It gets this one's API all the same; the report has the versions of both processes."""
    caplog.set_level(logging.INFO)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "grete-0.0.9.dist-info").mkdir()
    (environment / "manifest.json").write_text('{"grete": "0.0.8"}')
    job = start(answer("return grete.__version__"), job__application__environment=str(environment))
    assert sent(job, "k") == [grete.__version__]
    for version in ("0.0.8", "0.0.9"):
        assert f"has grete {version}; its application gets the API of this grete" in caplog.text
    assert re.search(r"task\.class=counting:Counter .* is in process \d+, with Python 3", caplog.text)
    config = {**CONFIG, "job.name": "a", "job.application.environment": str(environment)}
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    main(["doctor", "-o", "json", "--config", str(tmp_path / "job.properties")])
    [found] = [one for one in json.loads(capsys.readouterr().out) if one["check"] == "versions"]
    assert not found["ok"]
    python = platform.python_version()
    assert f"framework: grete {grete.__version__}, Python {python} ({sys.executable})" in found["found"]
    assert f"Python {python} ({environment}/bin/python)" in found["found"]
    assert "dist-info has grete 0.0.9" in found["found"]


# --- everything that a task has ---


def test_timers_windows_metrics_headers_and_secrets_cross_the_boundary(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_WORD", "sesame")
    text = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        context.scheduler.schedule("soon", 1_700_000_030_000)
        self.counter = context.metrics.counter("seen")
        self.word = context.config["my.word"]
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        self.counter.inc()
        self.counts.put(envelope.key, 1)
        self.counts.delete("gone")
        headers = [*envelope.headers, ("word", self.word)]
        collector.send("local.out", self.word, key=envelope.key, headers=headers, timestamp_ms=7)

    def window(self, collector, coordinator):
        collector.send("local.out", ["window", sorted(key for key, _ in self.counts.all())])

    def on_timer(self, key, collector, coordinator):
        collector.send("local.out", ["timer", key])
"""
    job = start(text, **{"my.word": "${env:GRETE_WORD}", "task.window.ms": "60000"})
    job.send("local.in", 1, key="k", headers=[("from", b"here")])
    job.run()
    [first] = job.outputs("local.out")
    assert (first.message, first.timestamp_ms) == ("sesame", 7)
    assert list(first.headers) == [("from", b"here"), ("word", b"sesame")]
    job.clock.advance(60.0)
    job.run()
    assert job.messages("local.out")[1:] == [["timer", "soon"], ["window", ["k"]]]


def test_a_store_is_read_beyond_what_is_fetched_at_once(start: Start) -> None:
    text = (
        COUNTER
        + """
    def window(self, collector, coordinator):
        collector.send("local.out", [len(list(self.counts.all())), self.counts.get("k4999")])
"""
    )
    job = start(text, **{"task.window.ms": "1000"})
    keys = [f"k{number:04}" for number in range(5_000)]
    assert sent(job, *keys) == [1] * 5_000
    job.restart(lose_stores=True)
    job.clock.advance(1.0)
    job.run()
    assert job.messages("local.out")[-1] == [5_000, 1]


def test_messages_of_a_task_in_progress_at_the_same_time_are_refused() -> None:
    config = {"job.name": "a", "job.split.deployment.enabled": "true", "task.inputs": "local.in"}
    with pytest.raises(ConfigError, match="one message of a task in progress"):
        validate(config | {"task.class": "my:Task", "task.max.concurrency": "2"})


def test_a_serde_that_needs_the_frameworks_packages_is_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match="the serde 'avro', which an application with"):
        sent(start(**{"stores.counts.msg.serde": "avro"}), "k")


def test_a_serde_of_the_applications_own_runs_in_its_process(start: Start) -> None:
    serde = """
import os

class Own(grete.Serde):
    def to_bytes(self, value):
        return f"{os.getpid() == PID} {value}".encode()

    def from_bytes(self, data):
        return data.decode()

PID = os.getpid()
"""
    own = {"serializers.registry.own.class": "counting:Own", "stores.counts.key.serde": "own"}
    text = (
        COUNTER
        + """
    def window(self, collector, coordinator):
        collector.send("local.out", [key for key, _ in self.counts.all()])
"""
    )
    job = start(text + serde, **own, **{"task.window.ms": "1000"})
    assert sent(job, "a", "a") == [1, 2]
    job.clock.advance(1.0)
    job.run()
    assert job.messages("local.out")[-1] == ["True a"]


def test_the_old_name_of_the_switch_is_as_good(start: Start) -> None:
    old = {"samza.cluster.based.job.coordinator.dependency.isolation.enabled": "true"}
    job = start(
        answer("return os.getpid()", imports="import os"), without="job.split.deployment.enabled", **old
    )
    assert sent(job, "k") != [os.getpid()]
