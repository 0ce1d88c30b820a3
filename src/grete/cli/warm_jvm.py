"""The JVM that `grete dev` keeps for a pipeline's container, which is started again at each save."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from grete.config.settings import Settings
from grete.environment import WARM_JVM, WORKER_SOCKETS, grete_home
from grete.private_files import private_directory, private_opener

_END_S = 10.0


class WarmJvm:
    """At most one, in a process of its own (`grete.spark.warm_jvm`); containers are told by the environment."""

    def __init__(self) -> None:
        self._keeper: subprocess.Popen[str] | None = None
        self._config: Mapping[str, str] = {}
        self._sockets: Path | None = None

    def start_for(self, settings: Settings) -> None:
        """Let there be one for this configuration: a JVM is started with it. None where several would be needed."""
        job = settings.job
        is_of_use = job.is_pipeline and settings.spark.is_local and job.container_count == 1
        if (
            self._keeper is not None
            and self._keeper.poll() is None
            and is_of_use
            and self._config == settings.raw
        ):
            return
        self.close()
        if not is_of_use:
            return
        from grete.spark.session.worker_sockets import new_folder  # of Spark, which tasks do without

        folder = job.state_directory(job.id, grete_home())
        private_directory(folder)
        self._sockets = new_folder()
        if self._sockets is not None:
            os.environ[WORKER_SOCKETS] = str(self._sockets)
        place = folder / "warm-jvm.json"
        place.unlink(missing_ok=True)
        with open(folder / "warm-jvm.log", "w", opener=private_opener) as log:
            self._keeper = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "grete.spark.warm_jvm", str(place)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=job.application_path or None,
                start_new_session=True,
            )
        self._config = dict(settings.raw)
        os.environ[WARM_JVM] = f"{self._keeper.pid}:{place}"
        assert self._keeper.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already: the container starts a JVM of its own
            self._keeper.stdin.write(json.dumps(self._config) + "\n")
            self._keeper.stdin.flush()

    def close(self) -> None:
        """End it."""
        keeper, self._keeper = self._keeper, None
        for name in (WARM_JVM, WORKER_SOCKETS):
            os.environ.pop(name, None)
        if keeper is None:
            return
        assert keeper.stdin is not None
        with suppress(BrokenPipeError):
            keeper.stdin.close()
        try:
            keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
