"""What a process computes, said once: shares in one process would each count the whole of it."""

from __future__ import annotations

import threading
import time


class CpuTime:
    """The time that all threads of this process have computed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said_s = 0.0

    def since_last_s(self) -> float:
        """Seconds of a processor since the last call, whoever made it, without those of processes that it started."""
        with self._lock:
            now_s = time.process_time()
            gained_s, self._said_s = max(0.0, now_s - self._said_s), now_s
        return gained_s  # a process that was forked begins at nothing


CPU = CpuTime()
