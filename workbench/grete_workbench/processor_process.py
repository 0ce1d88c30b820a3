"""A process with one stream processor, without Spark, which stops in order at SIGTERM.

    python -m grete_workbench.processor_process CONFIG.json ID

Each change of its state, and each call of its listener, is a line of its output. SIGUSR1 shows what its threads do.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
from pathlib import Path

import grete
from grete.container.without_spark import run_container


def say(word: object) -> None:
    """A line, in one piece: the listener's thread and ours say them at the same time."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Said(grete.ProcessorListener):
    """Prints each call."""

    def before_start(self) -> None:
        """See ProcessorListener."""
        say("before_start")

    def after_start(self) -> None:
        """See ProcessorListener."""
        say("after_start")

    def after_stop(self) -> None:
        """See ProcessorListener."""
        say("after_stop")

    def after_failure(self, error: BaseException) -> None:
        """See ProcessorListener."""
        say(f"after_failure {type(error).__name__} {error}")


def main(config: Path, id: str) -> int:
    """Take part until the job ends or SIGTERM comes; 1 when the processor has failed."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    processor = grete.StreamProcessor(
        json.loads(config.read_text()), listener=Said(), processor_id=id, run_container=run_container
    )
    faulthandler.register(signal.SIGUSR1)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    processor.start()
    said = grete.ProcessorState.NEW
    while True:
        # the last state is said at the very end alone: the processor has it a moment before its listener is called
        if (state := processor.state) not in (said, grete.ProcessorState.STOPPED):
            said = state
            say(state)
        if asked.is_set():
            processor.stop()
        try:
            if processor.wait(0.02):
                say(processor.state)
                return 0
        except grete.GreteError:
            return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
