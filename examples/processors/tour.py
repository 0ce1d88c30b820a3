"""A job that is shared by this program and another one, cell by cell as in a notebook.

    GRETE_HOME=home python examples/processors/tour.py

In a notebook the application stays in a module of its own (`words.py`), since the processes that run tasks import it.
"""

# %% The job. Every program that shares it has the same configuration.
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from words import CountWords

import grete

CONFIG = {
    "job.name": "tour",
    "job.debounce.time.ms": "1000",
    "job.coordinator.lease.ttl.ms": "5000",
    "task.inputs": "local.tour-lines",
    "task.outputs": "local.tour-counts",
    "spark.master": "local[1]",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.msg.serde": "string",
    "streams.tour-counts.samza.key.serde": "string",
    "streams.tour-counts.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}


def shell(command: str) -> str:
    """The output of a `grete` command."""
    done = subprocess.run(
        [sys.executable, "-m", "grete.cli.main", *command.split()], capture_output=True, text=True, check=True
    )
    return done.stdout


def append(partition: int, line: str) -> None:
    """Append a line to a partition of the job's input."""
    arguments = ["stream", "append", "local.tour-lines"]
    record = json.dumps({"value": line, "partition": partition})
    subprocess.run([sys.executable, "-m", "grete.cli.main", *arguments], input=record, text=True, check=True)


def until(text: str, command: str) -> str:
    """Wait until the output of a command holds the text."""
    while text not in (shown := shell(command)):
        time.sleep(0.5)
    return shown


# %% Another program joins: this file again, which then only waits for its end.
if __name__ == "__main__" and sys.argv[1:] == ["join"]:
    with grete.StreamProcessor(CONFIG, CountWords, processor_id="other") as processor:
        processor.wait()
    sys.exit()

# %% This program takes part, and says so.
if __name__ == "__main__":

    class Said(grete.ProcessorListener):
        """Prints the turns of its life."""

        def after_start(self) -> None:
            """See ProcessorListener."""
            print("this program processes")

        def after_stop(self) -> None:
            """See ProcessorListener."""
            print("this program has left the job")

    shell("stream create local.tour-lines --partitions 2")
    mine = grete.StreamProcessor(CONFIG, CountWords, listener=Said(), processor_id="mine")
    mine.start()

    # %% The first words are counted here.
    append(0, "the trial")
    append(1, "the castle")
    until('"key":"castle","value":"1"', "stream dump --stream local.tour-counts")
    print("state:", mine.state)

    # %% The other program joins, and gets half of the tasks.
    other = subprocess.Popen([sys.executable, str(Path(__file__)), "join"])
    print(until("Partition 1  1", "job-model --job tour"))

    # %% It is killed. Its tasks come back, with what they have counted.
    other.send_signal(signal.SIGKILL)
    other.wait()
    append(1, "the castle")
    print(until('"key":"castle","value":"2"', "stream dump --stream local.tour-counts"))

    # %% The last one ends the job.
    mine.stop()
    print("ended in time:", mine.wait(60))
    print(shell("status --job tour"))
