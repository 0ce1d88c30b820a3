"""Stores that streams fill, and not the task (Samza's side inputs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from grete.api import IncomingMessageEnvelope, KeyValueStore, SideInputsProcessor, TaskContext
from grete.application.load import load_class
from grete.errors import ConfigError
from grete.model.ids import SystemStreamPartition

Process = Callable[[IncomingMessageEnvelope, Any, Any], Any]
Described = Mapping[str, tuple[Sequence[str], str | None]]
"""Of each store that has side inputs: their names, and the class that makes entries of their messages."""
_KEY = "stores.{}.side.inputs.processor.factory"


class SideInputs:
    """What fills stores of one task, made with its instance."""

    def __init__(self, described: Described, stores: Mapping[str, KeyValueStore]) -> None:
        """`stores` are all of the task's.

        Raises:
            ConfigError: a processor cannot be found, or is none.
            ApplicationError: its module fails while it is imported.
        """
        self._processors = {store: processor_of(store, named) for store, (_, named) in described.items()}
        self._filled_by: dict[str, list[str]] = {}
        for store, (streams, _) in described.items():
            for stream in streams:
                self._filled_by.setdefault(stream, []).append(store)
        self._stores = stores
        self.of_task: dict[str, KeyValueStore] = {
            name: ReadOnlyStore(name, store, described[name][0]) if name in described else store
            for name, store in stores.items()
        }
        """The stores as the task has them."""

    def init(self, context: TaskContext) -> None:
        """Call the processors' `init`, before that of the task."""
        for processor in self._processors.values():
            processor.init(context)

    def receiver(self, ssp: SystemStreamPartition, process: Process) -> Process:
        """Who gets the messages of an SSP: the stores that its stream fills, else the task's `process`."""
        names = self._filled_by.get(str(ssp.system_stream))
        if names is None:
            return process
        fills = [(self._processors[name].process, self._stores[name]) for name in names]

        def fill(envelope: IncomingMessageEnvelope, collector: object, control: object) -> None:
            for entries_of, store in fills:
                for key, value in entries_of(envelope, store):
                    if key is not None:  # Samza passes over these
                        store.put(key, value)

        return fill


def processor_of(store: str, path: str | None) -> SideInputsProcessor:
    """A new instance of a store's processor.

    Raises:
        ConfigError: it cannot be found, or is none.
        ApplicationError: its module fails while it is imported.
    """
    if path is None:
        return SideInputsProcessor()
    key = _KEY.format(store)
    made = load_class(path, key)()
    if not isinstance(made, SideInputsProcessor):
        raise ConfigError(f"{key}: {path!r} is not a grete.SideInputsProcessor")
    return made


class ReadOnlyStore:
    """A store that side inputs fill, as its task has it. What a task put into it would be gone from it one day: the
    stream brings the key again, or is read anew.
    """

    def __init__(self, name: str, store: KeyValueStore, streams: Iterable[str]) -> None:
        self._name = name
        self._streams = streams
        self.get, self.get_all = store.get, store.get_all
        self.range: Callable[[Any, Any], Iterator[tuple[Any, Any]]] = store.range
        self.all: Callable[[], Iterator[tuple[Any, Any]]] = store.all

    def put(self, key: Any, value: Any) -> None:
        """Refused.

        Raises:
            TypeError: always.
        """
        self._refuse()

    def delete(self, key: Any) -> None:
        """Refused.

        Raises:
            TypeError: always.
        """
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"a task only reads the store {self._name!r}, which {', '.join(self._streams)} fills; "
            f"put what is the task's own into another store"
        )
