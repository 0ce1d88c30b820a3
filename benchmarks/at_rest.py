"""What a job costs that has nothing to do: 100 tasks, embedded. `python -m benchmarks.at_rest [SECONDS]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

TASKS = 100
BEGUN_S = 30.0
"""By then everything waits as long as it ever does."""
APPLICATION = """
import grete

class Application(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message, key=envelope.key)
"""
PROPERTIES = """
job.name=rest
job.application.path=.
task.class=application:Application
task.inputs=local.in
task.outputs=local.out
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
spark.master=local[2]
"""


def run(seconds: float) -> dict[str, float]:
    """Percent of a core, by process and in all, how often in a second they wake up, and the memory of each in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "GRETE_HOME": str(folder / "home")}
        (folder / "application.py").write_text(APPLICATION)
        (folder / "job.properties").write_text(PROPERTIES)

        def grete(*words: str) -> list[str]:
            return [sys.executable, "-m", "grete.cli.main", *words]

        for stream, partitions in (("local.in", TASKS), ("local.out", 4)):
            create = grete("stream", "create", stream, "--partitions", str(partitions))
            subprocess.run(create, env=environment, check=True, stdout=subprocess.DEVNULL)
        config = str(folder / "job.properties")
        job = subprocess.Popen(grete("run", "--quiet", "--config", config), env=environment)
        try:
            time.sleep(BEGUN_S)
            processes = of_home(str(folder / "home"))
            before = {pid: (cpu_s(pid), _wakes(pid)) for pid in processes}
            time.sleep(seconds)
            found: dict[str, float] = {}
            wakes, memory = 0.0, dict[str, float]()
            for pid, what in processes.items():
                with suppress(OSError):
                    percent = (cpu_s(pid) - before[pid][0]) / seconds * 100
                    found[what] = round(found.get(what, 0.0) + percent, 2)
                    wakes += (_wakes(pid) - before[pid][1]) / seconds
                    memory[f"{what}_mb"] = memory.get(f"{what}_mb", 0.0) + _memory_mb(pid)
        finally:
            stop = grete("stop", "--job", "rest")
            subprocess.run(stop, env=environment, stdout=subprocess.DEVNULL, check=False)
            job.wait(60)
    return {**found, "in_all": round(sum(found.values()), 2), "wakes_per_s": round(wakes, 1), **memory}


def of_home(home: str) -> dict[int, str]:
    """The processes of the jobs of a home, by what they are."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = _name((folder / "cmdline").read_bytes())
    return found


def _name(command: bytes) -> str:
    names = {b"pyspark": "workers", b"grete.spark.container": "container", b"grete.cli.main": "coordinator"}
    if b"/bin/java" in command:
        return "jvm"
    return next((name for part, name in names.items() if part in command), "other")


def cpu_s(pid: int) -> float:
    """Seconds of a processor that it has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    """What it shares with others counts by its part."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) // 1024


def _wakes(pid: int) -> int:
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("voluntary_ctxt")]
    return sum(int(line.split()[1]) for line in lines)


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0), indent=2))
