"""The event loop in which coroutines of a worker's tasks run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskEventLoop:
    """The event loop of a worker's tasks, made when it is first used. Used by one thread."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def finish(self, result: Coroutine[Any, Any, T]) -> T:
        """Run until it has ended; returns its result."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(result)

    def finish_call(self, result: Any) -> None:
        """End a call of a method that may be `async def`."""
        if inspect.iscoroutine(result):
            self.finish(result)

    def close(self) -> None:
        """Cancel what the application has left running."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
