"""The real Samza 1.8.0 planning stories, in a JVM that lives as long as the campaign."""

from __future__ import annotations

import json
import os
import subprocess
from tempfile import TemporaryFile
from types import TracebackType

from grete.coordinator.java_order import IDENTITY_HASH
from grete_workbench.plans.compare import Answer
from grete_workbench.plans.stories import Start, Story
from grete_workbench.real_samza import SamzaFailed, java_command


class SamzaPlanner:
    """Plans one story after another. Use it in a `with`."""

    def __init__(self) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115 - closed with the process
        hash_of_modes = f"-Dgrete.identity.hash={IDENTITY_HASH}"
        command = java_command("grete.interop.Planner", jvm=[hash_of_modes])
        self._process = subprocess.Popen(  # noqa: S603 - our own words
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "SAMZA_EPOCH_ID": "fuzz"},
        )

    def plan(self, story: Story) -> list[Answer]:
        """Samza's answer to each start.

        Raises:
            SamzaFailed: the JVM ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps([_document(start) for start in story.starts]).encode() + b"\n"
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answered = self._process.stdout.readline()
        except BrokenPipeError:
            answered = b""
        if not answered:
            self._errors.seek(0)
            raise SamzaFailed(f"the planner ended: {self._errors.read()[-2_000:].decode(errors='replace')}")
        return [Answer(**each) for each in json.loads(answered)]

    def close(self) -> None:
        """End the JVM."""
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> SamzaPlanner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _document(start: Start) -> dict[str, object]:
    streams: dict[str, dict[str, int]] = {}
    for name, partitions in start.streams.items():
        system, _, stream = name.partition(".")
        streams.setdefault(system, {})[stream] = partitions
    return {"config": dict(start.config), "streams": streams, "hosts": dict(start.hosts)}
