"""The list of an output's files, whoever writes it meanwhile: each batch once, and a successor's word is the last."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.errors import Fenced, FilesUnreachable, JobError
from grete.spark.sinks.file_list import FileList

BATCH_OF = re.compile(r"/batch=(\d+)/")
_NAME = re.compile(r"(\d+)(\.compact)?\Z")


class Store:
    """Objects in a dictionary. `meanwhile` is called before each request; a lost answer is one of a request that was
    carried out."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.loses_answer: Callable[[], bool] = lambda: False

    def names(self) -> list[str]:
        self.meanwhile()
        return list(self.objects)

    def read(self, name: str) -> bytes:
        self.meanwhile()
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def create(self, name: str, content: bytes) -> bool:
        self.meanwhile()
        made = self.objects.setdefault(name, content) is content
        if self.loses_answer():
            raise FilesUnreachable("no answer")
        return made

    def remove(self, name: str) -> None:
        self.meanwhile()
        self.objects.pop(name, None)

    def listed(self) -> list[str]:
        """The lines as a reader of Spark's finds them: from the newest compact entry on, and none may be lacking."""
        found = {int(match[1]): match[0] for match in filter(None, map(_NAME.match, self.objects))}
        if not found:
            return []
        last = max(found)
        first = max((number for number in range(last + 1) if (number + 1) % 10 == 0), default=0)
        names = [
            f"{number}.compact" if (number + 1) % 10 == 0 else str(number)
            for number in range(first, last + 1)
        ]
        return [line for name in names for line in self.objects[name].decode().splitlines()[1:]]


class Writer:
    """A container of one epoch: claims, and writes batches under its own name."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world, self.epoch = world, epoch
        self.list = FileList(world.store, BATCH_OF, self._check)

    def _check(self) -> None:
        if self.world.epoch > self.epoch:
            raise Fenced("files", epoch=self.epoch, seen=self.world.epoch)

    def claim(self) -> None:
        self.world.epoch = max(self.world.epoch, self.epoch)
        self.list.begin(lambda: ["/batch=1000/of-0-0"])
        self.world.claimed(self.epoch)

    def write(self, batch: int) -> None:
        if str(batch) not in self.list:
            self.list.add([f"/batch={batch}/of-{self.epoch}-{n}" for n in range(2)], str(batch))
        self.world.written.add(batch)


class World:
    """One folder, its newest epoch, and what was promised."""

    def __init__(self) -> None:
        self.store = Store()
        self.epoch = 0
        self.written: set[int] = set()
        self.before: dict[int, list[str]] = {}

    def claimed(self, epoch: int) -> None:
        """From here on nothing of an earlier one comes to the list."""
        lines = self.store.listed()
        self.before[epoch] = [line for line in lines if int(line.split("of-")[1].split("-")[0]) < epoch]

    def check(self) -> None:
        lines = self.store.listed()
        assert len(lines) == len(set(lines))
        by_batch: dict[int, set[str]] = {}
        for line in lines:
            by_batch.setdefault(int(line.split("=")[1].split("/")[0]), set()).add(
                line.split("of-")[1].split("-")[0]
            )
        assert all(len(epochs) == 1 for epochs in by_batch.values()), "a batch is of one container"
        assert self.written <= set(by_batch), "what was said to be written is listed"
        for epoch, known in self.before.items():
            earlier = [line for line in lines if int(line.split("of-")[1].split("-")[0]) < epoch]
            assert earlier == known, f"nothing of an earlier one comes after epoch {epoch} has begun"


@settings(max_examples=300, deadline=None)
@given(
    moments=st.lists(st.integers(0, 40), max_size=12),
    lost=st.sets(st.integers(0, 60), max_size=6),
    batches=st.integers(1, 24),
)
def test_each_batch_is_listed_once_whoever_begins_or_wakes_at_any_request(
    moments: list[int], lost: set[int], batches: int
) -> None:
    world = World()
    requests, answers = iter(range(10**6)), iter(range(10**6))
    world.store.loses_answer = lambda: next(answers) in lost
    waiting, paused = sorted(moments, reverse=True), list[Writer]()

    def go_on(writer: Writer) -> None:
        """Write all batches, and again what got no answer."""
        for batch in range(batches):
            for _ in range(len(lost) + 1):
                try:
                    writer.write(batch)
                    break
                except FilesUnreachable:
                    continue

    def begin() -> None:
        writer = Writer(world, world.epoch + 1)
        paused.append(writer)
        while True:
            with suppress(FilesUnreachable):
                writer.claim()
                break
        go_on(writer)

    def meanwhile() -> None:
        if waiting and next(requests) >= waiting[-1]:
            waiting.pop()
            with suppress(Fenced):
                begin()
            world.check()

    world.store.meanwhile = meanwhile
    for _ in range(2):
        with suppress(Fenced):
            begin()
        for writer in paused:  # each wakes once more; the last one alone may write
            with suppress(Fenced, FilesUnreachable):
                go_on(writer)
                writer.write(batches)
        world.check()
    assert set(range(batches)) <= world.written


def test_a_list_that_is_damaged_is_refused_and_one_of_a_hundred_entries_is_short() -> None:
    world = World()
    writer = Writer(world, 1)
    writer.claim()
    for batch in range(100):
        writer.write(batch)
    assert len(world.store.objects) <= 32, "those before the newest two compact ones are removed"
    assert len(world.store.listed()) == 201
    again = Writer(world, 2)
    again.claim()
    assert [batch in again.list for batch in ("99", "100")] == [True, False]
    last = max(int(name.partition(".")[0]) for name in world.store.objects)
    del world.store.objects[str(last - 1)]
    with pytest.raises(JobError, match=rf"entry {last - 1} is not there, and {last} is"):
        Writer(world, 3).claim()
    for garbage in (b"v9", b"", b"\xff\x00"):
        world.store.objects[str(last - 1)] = garbage
        with pytest.raises(JobError, match="no list of files"):
            Writer(world, 3).claim()
