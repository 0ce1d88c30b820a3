"""An application's environment with another version of a package of grete's, where its maker's interpreter is not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import google.protobuf
import orjson
import pytest
from google.protobuf import struct_pb2

from grete.errors import PackageError
from grete.packages.build import Built, build_application, build_framework
from grete.packages.verify import verify
from grete.testing.job import JobUnderTest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "scripts" / "packages" / "application.txt"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "grete")
WHEELS = Path(os.environ.get("GRETE_APPLICATION_WHEELS", CACHE / "application-wheels"))
SEEN = """
import json, ssl, sqlite3, sys, orjson, mine, importlib.util
has_no_grete = importlib.util.find_spec("grete") is None
print(json.dumps([orjson.__version__, sys.prefix, mine.__file__, has_no_grete, sys.path]))
"""

READING = """
import grete, google.protobuf, orjson
from google.protobuf import struct_pb2

class Reader(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        read = struct_pb2.Struct.FromString(envelope.message)
        collector.send("local.out", [read["carrier"], orjson.__version__, google.protobuf.__version__])
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pip finds the wheels that `make services` has fetched, and asks no registry."""
    assert WHEELS.is_dir(), f"no wheels in {WHEELS}: make services"
    folder = tmp_path_factory.mktemp("packages")
    (folder / "application").mkdir()
    (folder / "application" / "mine.py").write_text("A = 1\n")
    return folder


@pytest.fixture(scope="module")
def built(offline: Path) -> Built:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(WHEELS))
        return build_application(offline / "out", LOCK, Path(sys.executable), offline / "application")


def without_its_makers_interpreter(command: list[str]) -> str:
    """What a command prints in a mount namespace where the folder of this interpreter is empty.

    Of the system's own, whose folder is the system's, its library is.
    """
    its_own = str(Path(os.__file__).parent) if sys.base_prefix == "/usr" else sys.base_prefix
    hide = f'mount -t tmpfs tmpfs {its_own!r} && test -z "$(ls {its_own!r})" && exec "$@"'
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    own = ["unshare", "--mount", "--propagation", "private", *as_root, "bash", "-c", hide, "hidden"]
    done = subprocess.run(
        [*own, *command], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_where_its_makers_interpreter_is_not_and_has_its_own_packages(
    built: Built, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    with tarfile.open(built.archive) as archive:
        archive.extractall(place, filter="data")
    code = f"import sys; sys.path.insert(0, {str(place / 'lib')!r}){SEEN}"
    printed = without_its_makers_interpreter([str(place / "bin" / "python"), "-I", "-c", code])
    orjson, prefix, mine, has_no_grete, path = json.loads(printed)
    assert orjson == "3.10.18" != version("orjson")
    assert Path(prefix) == place
    assert Path(mine) == place / "lib" / "mine.py"
    assert has_no_grete
    assert all(Path(each).is_relative_to(place) for each in path)
    assert verify(place).problems == ()


def test_a_task_has_other_versions_of_orjson_and_protobuf_than_the_worker_beside_it(
    built: Built, tmp_path: Path
) -> None:
    """Both have libraries in C; protobuf is of another major version, and reads what the other one has written."""
    (tmp_path / "reading.py").write_text(READING)
    config = {
        "task.class": "reading:Reader",
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "systems.local.streams.out.samza.msg.serde": "json",
        "systems.local.samza.offset.default": "oldest",
        "job.split.deployment.enabled": "true",
        "job.application.path": str(tmp_path),
        "job.application.environment": str(built.folder),
    }
    ours = (version("orjson"), version("protobuf"))
    assert (orjson.__version__, google.protobuf.__version__) == ours
    message = struct_pb2.Struct()
    message.update({"carrier": "AA"})
    with closing(JobUnderTest(config=config).start()) as job:
        job.send("local.in", message.SerializeToString())
        job.run()
        [(carrier, *theirs)] = job.messages("local.out")
    assert carrier == "AA"
    assert theirs == ["3.10.18", "5.29.5"]
    assert [one.partition(".")[0] for one in (ours[1], theirs[1])] == ["6", "5"]
    assert ours[0] != theirs[0]
    assert built.folder not in Path(google.protobuf.__file__).parents


def test_its_folder_and_archive_are_what_the_manifest_says_and_have_no_link(built: Built) -> None:
    assert verify(built.folder).problems == verify(built.archive).problems == ()
    assert dict(built.manifest.requirements) == {"orjson": "3.10.18", "protobuf": "5.29.5"}
    with tarfile.open(built.archive) as archive:
        entries = archive.getmembers()
    assert all(entry.isreg() and not entry.name.startswith((".", "/")) for entry in entries)
    assert {entry.name.split("/")[0] for entry in entries} == {"bin", "lib", "manifest.json"}


def test_a_library_that_was_damaged_on_one_machine_is_named(built: Built, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(built.folder, tmp_path / "package"))
    [library] = folder.glob("lib/python3*/*-packages/orjson/*.so")
    with library.open("r+b") as file:
        file.seek(5_000)
        file.write(b"damage")
    assert verify(folder).problems == (f"{library.relative_to(folder)}: its content has changed",)


def test_a_wheel_of_another_hash_is_refused_and_nothing_is_left(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(WHEELS))
    (tmp_path / "lock.txt").write_text(f"orjson==3.10.18 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PackageError, match="DO NOT MATCH THE HASHES"):
        build_application(
            tmp_path / "out", tmp_path / "lock.txt", Path(sys.executable), offline / "application"
        )
    assert list((tmp_path / "out").iterdir()) == []


def test_the_client_of_spark_connect_is_made_of_its_source_and_nothing_else_is(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no wheel of it. Setuptools is that of the interpreter: nothing comes without a hash."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{WHEELS} {tmp_path}")
    _, client = (LOCK.parent / "connect.txt").read_text().split("pyspark-client", 1)
    lock, other = tmp_path / "lock.txt", tmp_path / "other-1.0.tar.gz"

    def build(text: str) -> Built:
        lock.write_text(text)
        return build_application(tmp_path / "out", lock, Path(sys.executable), offline / "application")

    shutil.copyfile(next(WHEELS.glob("pyspark_client-*.tar.gz")), other)
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    with pytest.raises(PackageError, match="No matching distribution found for other"):
        build(f"other==1.0 --hash=sha256:{digest}\n")
    assert build(f"pyspark_client{client}").manifest.requirements == {"pyspark-client": "4.0.1"}


def test_a_module_that_would_overwrite_the_interpreters_is_refused(tmp_path: Path) -> None:
    minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "application" / minor).mkdir(parents=True)
    (tmp_path / "application" / minor / "json.py").write_text("")
    (tmp_path / "lock.txt").write_text("# nothing\n")
    with pytest.raises(PackageError, match="where the interpreter has its files"):
        build_application(
            tmp_path / "out", tmp_path / "lock.txt", Path(sys.executable), tmp_path / "application"
        )


def test_the_framework_starts_a_coordinator_from_its_own_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies where it is started and on PYTHONPATH, with the levels that the application asks for."""
    (tmp_path / "lock.txt").write_text("")
    built = build_framework(tmp_path / "out", tmp_path / "lock.txt", Path(sys.executable))
    run = str(built.folder / "bin" / "run-jc.sh")
    for name in ("json", "argparse", "grete"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the application')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "usage: grete run" in without_its_makers_interpreter([run, "--help"])
    assert "grete " in without_its_makers_interpreter([str(built.folder / "bin" / "grete"), "--version"])

    (library := tmp_path / "out" / "__package" / "lib").mkdir(parents=True)
    (library / "logging.toml").write_text('level = "LOUD"')
    for switch in (
        "ENV_SPLIT_DEPLOYMENT_ENABLED",
        "CLUSTER_BASED_JOB_COORDINATOR_DEPENDENCY_ISOLATION_ENABLED",
    ):
        done = subprocess.run([run], env={switch: "true"}, capture_output=True, text=True, timeout=60)
        assert "__package/lib/logging.toml: level is no level" in done.stderr
    assert (
        "logging.toml" not in subprocess.run([run], env={}, capture_output=True, text=True, timeout=60).stderr
    )
