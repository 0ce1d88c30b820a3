"""A pipeline in an environment of the application's own: what its process says, and what is wrong with it."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from grete.application.beside import ApplicationProcess, CallFailed
from grete.config.settings import Settings
from grete.errors import ApplicationError, ConfigError
from grete.model.ending import exit_code
from grete.spark.pipeline import beside as pipeline_beside
from grete.spark.pipeline.beside import PipelineBeside
from grete.testing.waiting import patient

PIPELINE = """
import grete

class Own(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs):
        return inputs["local.in"]
"""
CONFIG = {
    "job.name": "own",
    "job.split.deployment.enabled": "true",
    "app.class": "mine:Own",
    "task.inputs": "local.in",
    "spark.master": "local[1]",
}
Load = Callable[..., PipelineBeside]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads the pipeline of a text in a process."""
    loaded: list[PipelineBeside] = []

    def load(text: str = PIPELINE, **more: str) -> PipelineBeside:
        (tmp_path / "mine.py").write_text(text)
        config = {**CONFIG, "job.application.path": str(tmp_path)}
        config |= {name.replace("__", "."): value for name, value in more.items()}
        one = PipelineBeside(cast(Any, None), config["app.class"], Settings.of(config))
        loaded.append(one)
        return one

    yield load
    for one in loaded:
        one.close()


def test_it_is_described_by_its_process_and_never_imported_here(load: Load) -> None:
    pipeline = load()
    assert (pipeline.output, pipeline.output_mode) == ("local.out", "update")
    assert "mine" not in sys.modules


def test_a_write_batch_of_its_own_is_refused_since_it_would_run_in_the_container(load: Load) -> None:
    text = f"{PIPELINE}\n    def write_batch(self, name, frame, batch):\n        pass\n"
    with pytest.raises(ConfigError, match="write_batch would run in the container"):
        load(text)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "import os\nprint('so long', flush=True)\nos._exit(3)\n",
            ApplicationError,
            r"(?s)exit code 3.*so long",
        ),
        ("1 / 0\n", ApplicationError, "ZeroDivisionError"),
        ("raise SystemExit(0)\n", ApplicationError, r"'mine' cannot be imported: SystemExit\(0\)"),
        ("Own = dict\n", ConfigError, "is not a grete.DataFramePipeline"),
        ("", ConfigError, "has no 'Own'"),
        ("import nowhere_at_all\n", ConfigError, "no module 'nowhere_at_all'"),
    ],
)
def test_a_class_that_cannot_be_loaded_is_named(
    load: Load, text: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        load(text)


def test_a_module_that_hangs_at_import_is_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_beside, "ApplicationProcess", partial(ApplicationProcess, start_s=1.0))
    with pytest.raises(ApplicationError, match=r"mine:Own .* was not imported within 1 s"):
        load("import time\ntime.sleep(1_000)\n")


def test_an_environment_without_spark_connect_is_named_with_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (tmp_path / "mine.py").write_text(PIPELINE)
    process = ApplicationProcess(str(folder / "bin" / "python"), str(tmp_path), start_s=patient(60))
    try:
        said = {"path": "mine:Own", "config": {}, "levels": {"": 20}}
        process.load(said, _nothing, verb="pipeline")
        request = {"address": "sc://localhost:1", "inputs": {}, "prefix": "p"}
        with pytest.raises(CallFailed, match="pyspark-client"):
            process.call("build", request, answers=_nothing)
    finally:
        process.close()


def _nothing(verb: str, value: Any, blobs: Any) -> Any:
    raise AssertionError(verb)


REFUSED = """
from grete.application import pipeline

def refused(address):
    print("connecting to", address, flush=True)
    raise ValueError(f"[CANNOT_CONFIGURE] no server at {address}")

pipeline._connected = refused
"""


def test_the_token_of_the_service_is_in_no_error_of_a_client_that_names_its_address(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, token = load(PIPELINE + REFUSED), "hunter2hunter2"
    pipeline._begun.hide(token)
    with caplog.at_level(logging.INFO), pytest.raises(ApplicationError, match=r"no server at sc:") as raised:
        pipeline._ask({"address": f"sc://localhost:7/;token={token}", "inputs": {}, "prefix": "p"})
    said = "".join(traceback.format_exception(raised.value))
    assert token not in said + caplog.text
    assert "token=***" in said
    assert "connecting to sc://localhost:7/;token=***" in caplog.text


CONNECTED = """
import builtins, gc, json, os, struct, sys, time
from grete.application import pipeline

class Frame:
    isStreaming = True

    def createOrReplaceGlobalTempView(self, view):
        pass

class Session:
    def table(self, view):
        return Frame()

class Mute(Exception):
    def __str__(self):
        raise LookupError("no words")

pipeline._connected = lambda address: (Frame, Session())
"""
WRITING = (
    "[os.write(one._writes, b'good morning') for one in gc.get_objects() if type(one).__name__ == 'Pipe']"
)
BUILD = {"address": "", "inputs": {"local.in": "view"}, "prefix": "out_"}


def building(text: str) -> str:
    """A pipeline that does this in `build`, with as much of Spark Connect as it needs."""
    return CONNECTED + PIPELINE.replace('return inputs["local.in"]', text)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("print('so long', flush=True); os._exit(3)", 8, "(?s)exit code 3 during 'build'.*so long"),
        ("sys.exit(0)", 8, r"build of mine:Own failed: it has called sys.exit\(0\)"),
        ("os.kill(os.getpid(), 11)", 8, "signal SIGSEGV during 'build'"),
        ("{}['nothing']", 8, r"build of mine:Own failed: KeyError: 'nothing' \(mine.py, line \d+\)"),
        (
            "inputs['local.other']",
            2,
            r"asks for the input 'local.other', which is none; task.inputs has local\.\w+",
        ),
        ("raise Mute", 8, "mine:Own"),
        ("self.build(inputs)", 8, "build of mine:Own failed: RecursionError: maximum recursion depth"),
        ("os.closerange(3, 1 << 16)", 8, "mine:Own .* ended with exit code 1 during 'build'"),
        (
            WRITING,
            8,
            "mine:Own .* ended with signal SIGKILL during 'build'(?s:.*)else than the API has written into the pipe",
        ),
        ("return None", 2, "mine:Own.build has to return a DataFrame, .* it returned NoneType"),
        ("return {}", 2, "mine:Own.build returned an empty dict"),
        ("return {'local.out': 7}", 2, "output 'local.out' has to be a DataFrame, it is int"),
        ("return {7: inputs['local.in']}", 2, "the name of an output is text, 7 is not"),
    ],
)
def test_a_build_that_fails_ends_or_makes_no_frame_is_named_and_ends_the_container_as_it_should(
    load: Load, text: str, code: int, words: str
) -> None:
    pipeline = load(building(text))
    with pytest.raises((ApplicationError, ConfigError), match=words) as raised:
        pipeline._ask(BUILD)
    assert exit_code(raised.value) == code


@pytest.mark.parametrize(
    "text",
    [
        "print('out', flush=True); os.write(1, b'out\\n'); os.system('echo out')",
        "json.dumps = json.loads = json.JSONEncoder.encode = struct.unpack = time.sleep = None",
        "builtins.print = builtins.open = None",
        "os.fork() or os._exit(0)",
        "os.environ.clear(); os.chdir('/'); sys.path.clear(); sys.stdout.close(); sys.stdout = None",
    ],
)
def test_a_build_that_prints_forks_or_patches_the_standard_library_harms_nobody(
    load: Load, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = load(building(f"{text}; return inputs['local.in']"))
    assert pipeline._ask(BUILD) == {"local.out": "out_0"}
    pipeline.close()
    assert caplog.messages.count("out") == 3 * text.startswith("print")


@pytest.mark.parametrize(
    ("master", "way_out"),
    [
        ("local[2]", "set job.launcher=process"),
        ("spark://a:7077", "set job.launcher=process"),
        ("yarn", "leave PYSPARK_PYTHON to `grete deploy`"),
        ("k8s://https://a", "leave PYSPARK_PYTHON to `grete deploy`"),
    ],
)
def test_a_jvm_that_another_program_has_started_is_refused_with_the_way_out_there(
    master: str, way_out: str
) -> None:
    system = SimpleNamespace(getenv=lambda name: None)
    spark = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system))))
    with pytest.raises(ConfigError, match=way_out):
        pipeline_beside._check_interpreter(cast(Any, spark), Settings.of({**CONFIG, "spark.master": master}))
