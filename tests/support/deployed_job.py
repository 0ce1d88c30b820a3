"""A counting job on Kafka that a cluster manager runs, deployed by the command line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.fault.job_on_kafka import Job
from tests.support.client_environment import package_of_a_client

from grete.config.load import load
from grete.config.settings import Settings
from grete.metadata.history import HistoryEvent
from grete.metadata.job_state import JobState
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient, reaches
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.yarn import YarnCluster

EXECUTORS = Path(__file__).parents[2] / "packaging" / "image" / "executor.yml"
"""The template of the image, which executors' pods are made by."""
SPARK_HOME = Path(pyspark.__file__).parent
TELLING = """
import json
import sys

import grete
from pyspark.sql import functions as F

class Application(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()
        built_in = sys.prefix

        @F.udf("string")
        def told(value):
            return with_prefixes(value, built_in)

        return {"kafka.NAME-out": frame.select("key", told(frame["value"].cast("string")).alias("value"))}

def with_prefixes(value, built_in):
    return json.dumps({"built_in": built_in, "prefix": sys.prefix, **json.loads(value)})
"""
"""A pipeline that says with each record in which environment it was built and the record was seen."""
BROKERS = "DEPLOYED_JOBS_BROKERS"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


class DeployedJob(Job):
    """Its coordinator, container and executors are the manager's processes; commands have its configuration alone."""

    def __init__(self, directory: Path, cluster: KafkaCluster, settings: Mapping[str, str]) -> None:
        """Where its brokers are is in the environment of those who deploy it, and in no file of the job."""
        super().__init__(directory, cluster, settings=settings, brokers=f"${{env:{BROKERS}}}")
        self.config = directory / "job.properties"
        self.pods, self.namespace = directory / "pods", ""
        self.packages = directory / "packages"
        self.nodes: list[PodNode] = []
        self.configure({})

    def isolate(self) -> None:
        """Give the application a package with an interpreter of its own, which it names in each of its records.

        Its modules are nowhere else.
        """
        modules, lock = self._directory / "modules", self._directory / "lock.txt"
        modules.mkdir()
        text = (self._directory / "application.py").rename(modules / "application.py").read_text()
        named = text.replace('{"count"', '{"prefix": sys.prefix, "count"')
        (modules / "application.py").write_text(f"import sys\n{named}")
        lock.write_text("# the standard library is all it needs\n")
        words = ("--into", str(self.packages), "--lock", str(lock))
        built = self.grete("package", "build", "application", *words, "--application", str(modules))
        assert built.returncode == 0, built.stderr
        self._isolate("", json.loads(built.stdout)["folder"])

    def fail_at(self, number: int) -> None:
        """From the next deployment on its task fails with the record of that number."""
        application = self._directory / "application.py"
        failing = f"assert envelope.message['n'] != {number}, 'no {number}'\n        count ="
        application.write_text(application.read_text().replace("count =", failing))

    def assert_failed_at(self, number: int) -> None:
        """The job has ended by the words of the container that met the record."""
        state = self.state()
        assert state is not None
        assert f"AssertionError no {number} (application.py:" in state.message
        assert f"{self.id.name}-in.0 offset" in state.message
        ended = [row.details for row in self.history() if row.event == "container-exited"]
        assert {row["exit_code"] for row in ended if row["meaning"] == "poison message"} == {"3"}

    def become_pipeline(self, environment: Path) -> None:
        """Run the pipeline `TELLING` in an environment that is on every machine."""
        self._isolate(str(self._modules_of_pipeline()), str(environment))

    def become_packaged_pipeline(self) -> None:
        """Run it in a package that has its modules and Spark Connect's client; they are nowhere else."""
        modules = self._modules_of_pipeline()
        built = package_of_a_client(self._directory, modules)
        shutil.rmtree(modules)
        self._isolate("", str(built.folder))

    def _modules_of_pipeline(self) -> Path:
        modules = self._directory / "modules"
        modules.mkdir()
        (modules / "application.py").write_text(TELLING.replace("NAME", self.id.name))
        del self._settings["task.class"]
        self.configure({"app.class": "application:Application"})
        return modules

    def _isolate(self, modules: str, environment: str) -> None:
        self.configure(
            {
                "job.application.path": modules,
                "job.split.deployment.enabled": "true",
                "job.application.environment": environment,
            }
        )

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change the configuration that it is deployed with."""
        self._settings |= settings
        self.config.write_text("\n".join(f"{key}={value}" for key, value in self._settings.items()))

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A grete command with the job's configuration, in a home where nothing else is known of it."""
        return self.grete(*words, "--config", str(self.config), **environment)

    def grete(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A grete command in that home."""
        command = [sys.executable, "-m", "grete.cli.main", *words, "-o", "json"]
        home = str(self._directory / "operator")
        return subprocess.run(
            command,
            env={**os.environ, "GRETE_HOME": home, **environment},
            capture_output=True,
            text=True,
            timeout=patient(240),
        )

    def answer(self, *words: str) -> Any:
        """The document that a command prints, which must not fail."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def deployed_twice_at_once(self) -> str:
        """Deploy it from two homes at one moment, of which one is refused: what that one said."""
        homes = (self._directory / "one", self._directory / "other")
        with ThreadPoolExecutor(2) as both:
            done = list(both.map(lambda home: self.run("deploy", "apply", GRETE_HOME=str(home)), homes))
        assert sorted(one.returncode for one in done) == [0, 1], done
        [refused] = [one for one in done if one.returncode]
        return refused.stderr

    def state(self) -> JobState | None:
        """The job's state in its stream."""
        with open_job(self.id, Settings.of(load([str(self.config)], {}))) as handle:
            return handle.state()

    def history(self) -> list[HistoryEvent]:
        """The job's history."""
        with open_job(self.id, Settings.of(load([str(self.config)], {}))) as handle:
            return handle.history()

    def pod_logs(self) -> str:
        """The ends of the logs of its pods, and of their node's."""
        logs = [*self.pods.glob("*/log"), self._directory / "kubelet.log"]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-4_000:]}" for log in logs)

    def assert_ran_in_its_package(self, below: Path) -> None:
        """Each record is there once, and was made by an interpreter in that folder."""
        written = [output.value for output in self.written()]
        assert sorted(one["n"] for one in written) == list(range(self._sent))
        prefixes = {Path(str(one["prefix"])) for one in written}
        assert all(prefix.is_relative_to(below) for prefix in prefixes), prefixes

    def assert_pipeline_ran_in(self, below: Path, records: int, said: Callable[[], str]) -> None:
        """Each record was seen by a function in an environment in that folder, at least once, and so was the plan."""

        def seen() -> set[int]:
            return {output.value["n"] for output in self.written()}

        # after a kill a driver, an executor and the application's process start, which took 50 s on a busy machine
        reaches(lambda: len(seen()), records, "records", still_s=120, context=said)
        assert seen() == set(range(records))
        prefixes = {str(output.value[key]) for output in self.written() for key in ("built_in", "prefix")}
        assert all(Path(prefix).is_relative_to(below) for prefix in prefixes), prefixes

    def await_state(self, wanted: str, said: Callable[[], str]) -> None:
        """Wait until the job is in that state."""

        def state() -> str:
            found = self.state()
            return "" if found is None else found.state

        eventually(lambda: state() == wanted, f"the job is {wanted}", within_s=120, context=said)

    def starts(self) -> list[tuple[str, str]]:
        """Each start of a coordinator: what it was, and of which deployment."""
        rows = [row for row in self.history() if row.event in ("deployment", "attempt", "change")]
        return [(row.event, row.details["epoch_id"]) for row in rows]


@contextlib.contextmanager
def job_on_yarn(
    yarn: YarnCluster,
    kafka: KafkaCluster,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, str] | None = None,
) -> Iterator[DeployedJob]:
    """A job that is to be deployed on YARN, of which nothing runs afterwards."""
    monkeypatch.setenv("GRETE_HOME", str(directory / "home"))
    monkeypatch.setenv(BROKERS, kafka.bootstrap)
    of_yarn = {
        "spark.master": "yarn",
        "job.deploy.yarn.conf.dir": yarn.bootstrap,
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
        "spark.yarn.stagingDir": yarn.staging,
        "spark.yarn.scheduler.heartbeat.interval-ms": "500",
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.extraJavaOptions": _QUICK,
    }
    job = DeployedJob(directory, kafka, {**of_yarn, **(settings or {})})
    try:
        yield job
    finally:
        job.run("deploy", "kill")
        job.seen.close()


def processes_of(container: str, command: str) -> list[int]:
    """The processes of a YARN container that run a command."""
    wanted = f"CONTAINER_ID={container}".encode()
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_command = (one / "comm").read_text().strip() == command
            if is_command and wanted in (one / "environ").read_bytes().split(b"\0"):
                found.append(int(one.name))
    return found


def kill_application_master(container: str) -> None:
    """SIGKILL to the JVM of an ApplicationMaster."""
    [jvm] = processes_of(container, "java")
    os.kill(jvm, signal.SIGKILL)


class PodNode:
    """A node for the pods of one namespace, as a process; pods are in `pods`, by their names."""

    def __init__(self, server: KubeApiServer, namespace: str, pods: Path, number: int) -> None:
        """Starts it."""
        image = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": sys.executable,
        }
        words = [str(server.admin), str(pods), namespace, "--number", str(number)]
        command = [sys.executable, "-m", "grete_workbench.kubelet", *words]
        self.name, self._pods = f"node-{number}", pods
        with (pods.parent / "kubelet.log").open("a") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **image}, stdout=log, stderr=log)

    def mute(self) -> None:
        """SIGKILL to it alone: nothing is heard of it any more, and its pods go on."""
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL to it and to everything in its pods, as if its machine were lost."""
        self.mute()
        own = [one.parent for one in self._pods.glob("*/node") if one.read_text() == self.name]
        pids = [int((one / "pid").read_text()) for one in own]
        spaces = {space for pid in pids if (space := _mount_namespace(pid))} - {_mount_namespace(os.getpid())}
        while found := [pid for pid in _processes() if _mount_namespace(pid) in spaces]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it with its pods."""
        self._process.terminate()
        self._process.wait()


def _processes() -> list[int]:
    return [int(one.name) for one in Path("/proc").glob("[0-9]*")]


def _mount_namespace(pid: int) -> str | None:
    """None for a process that has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/mnt")
    return None


def new_namespace(server: KubeApiServer, prefix: str, labels: Mapping[str, str]) -> str:
    """One with the account that its controller would give it: without, pods are refused, after a second or two."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
    server.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    return name


@contextlib.contextmanager
def job_on_kubernetes(
    server: KubeApiServer,
    kafka: KafkaCluster,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, str] | None = None,
) -> Iterator[DeployedJob]:
    """A job that is to be deployed on Kubernetes, in a namespace and on a node of its own.

    The namespace takes pods of the restricted standard alone, drivers and executors.
    """
    namespace = new_namespace(server, "jobs", {"pod-security.kubernetes.io/enforce": "restricted"})
    monkeypatch.setenv("GRETE_HOME", str(directory / "home"))
    monkeypatch.setenv(BROKERS, kafka.bootstrap)
    of_kubernetes = {
        "spark.master": f"k8s://https://127.0.0.1:{server.nodes[0].port}",
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": "grete:tests",
        "spark.kubernetes.executor.podTemplateFile": str(EXECUTORS),
        "job.coordinator.kubernetes.kubeconfig": str(server.admin),
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.extraJavaOptions": _QUICK,
    }
    job = DeployedJob(directory, kafka, {**of_kubernetes, **(settings or {})})
    job.namespace = namespace
    job.nodes.append(PodNode(server, namespace, job.pods, 1))
    try:
        yield job
    finally:
        job.run("deploy", "kill")
        for node in job.nodes:
            node.stop()
        job.seen.close()
