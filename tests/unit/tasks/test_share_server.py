"""The connection between a container and its shares: who is let in, what is told, and how shares end."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from tests.support.tcp_proxy import TcpProxy

from grete.container.share_server import Began, EndedWell, Lost, ShareServer
from grete.errors import ContainerGone, JobError
from grete.tasks.share_channel import ShareChannel
from grete.tasks.shares import Committed, ShareStart
from grete.tasks.spec import TaskProgress, TaskReport
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually

START = ShareStart(
    lineage="l",
    slot=3,
    tasks=(7, 8),
    progress={7: TaskProgress("token", {"counts": 5}, {0: 41}), 8: TaskProgress()},
    starting={"kafka.in.0": 42},
    next_batch=6,
    log_end=99,
    shut_down=frozenset({8}),
    until_drained=True,
    bootstrap=("kafka.first",),
    later={"kafka.in.1": ["kafka.in.0"]},
)


@pytest.fixture(name="server")
def _serving() -> Iterator[ShareServer]:
    with ShareServer(lambda slot: START, "127.0.0.1", "127.0.0.1") as made:
        yield made


def channel(server: ShareServer, *, key: bytes | None = None) -> ShareChannel:
    return ShareChannel(server.address, server.key if key is None else key, 3, "worker")


def test_a_share_is_told_what_it_begins_with(server: ShareServer) -> None:
    with closing(channel(server)) as share:
        assert share.start == START
    assert server.events.get(timeout=10) == Began(3)


def test_a_share_gets_the_slot_that_its_process_had_before_and_keeps_it_in_all_its_attempts() -> None:
    def start_of(slot: int) -> ShareStart:
        return replace(START, slot=slot)

    def slot_of(named: int, warm: int | None = None) -> int:
        with closing(ShareChannel(server.address, server.key, named, "worker", warm)) as share:
            assert share.start is not None
            return share.start.slot

    slots = {slot: [slot] for slot in range(3)}
    with ShareServer(start_of, "127.0.0.1", "127.0.0.1", slots=slots) as server:
        assert slot_of(0, warm=1) == 1
        assert slot_of(1) == 0, "its own is taken"
        assert slot_of(0, warm=2) == 1, "another attempt"
        assert slot_of(2, warm=7) == 2, "there are fewer slots than before"
        assert slot_of(1, warm=1) == 0


def test_a_share_gets_the_slot_of_whose_tasks_its_machine_has_most_stores() -> None:
    """After a restart no process has had a slot, and each machine has the stores of those that it had."""

    def slot_of(named: int, stores: list[int], warm: int | None = None) -> int:
        share = ShareChannel(server.address, server.key, named, "worker", warm, stores)
        with closing(share):
            assert share.start is not None
            return share.start.slot

    def start_of(slot: int) -> ShareStart:
        return replace(START, slot=slot)

    slots = {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7]}
    with ShareServer(start_of, "127.0.0.1", "127.0.0.1", slots=slots) as server:
        assert slot_of(0, [0, 3, 7, 99]) == 3, (
            "of the other one it has one store only, and of 99 none is asked"
        )
        assert slot_of(3, [3, 7]) == 0, "that one is taken, and of the rest it has nothing"
        assert slot_of(1, list(range(8))) == 1, "its own, where it has all"
        assert slot_of(2, [], warm=1) == 2
        assert slot_of(0, [2, 6]) == 3, "another attempt"


def test_reports_come_in_their_order_and_as_they_were_sent(server: ShareServer) -> None:
    report = TaskReport(
        7, "token", 10, {0: 51}, positions={"counts": 15}, committed_at=120, slot=3, worker="w"
    )
    made = [Committed(3, number, [report], {"kafka.in.0": 52 + number}, commits=2) for number in range(3)]
    with closing(channel(server)) as share:
        for one in made:
            share.report(one)
        share.finish(is_drained=True)
        events = [server.events.get(timeout=10) for _ in range(5)]
    assert events == [Began(3), *made, EndedWell(3, True)]


def test_a_share_that_is_asked_to_end_knows_it(server: ShareServer) -> None:
    with closing(channel(server)) as share:
        assert not share.is_ending()
        server.end_all()
        eventually(share.is_ending, "the request to end")
        share.finish(is_drained=False)
    assert server.events.get(timeout=10) == Began(3)
    assert server.events.get(timeout=10) == EndedWell(3, False)


def test_a_share_that_is_asked_to_end_before_it_is_told_its_beginning_hears_both() -> None:
    """The byte came before the beginning, and was taken for its length."""

    def start_of(slot: int) -> ShareStart:
        server.end_all()
        return START

    with (
        ShareServer(start_of, "127.0.0.1", "127.0.0.1") as server,
        closing(ShareChannel(server.address, server.key, 3, "worker")) as share,
    ):
        assert share.start == START
        eventually(share.is_ending, "the request to end")
        share.finish(is_drained=False)


def test_when_all_packets_between_shares_and_their_container_are_lost_both_notice_it(
    server: ShareServer,
) -> None:
    """As when a machine is gone. The kernels ask each other, so a process that stands still is no loss."""
    [port] = free_ports(1)
    with TcpProxy(port, server.address[1]) as proxy, ExitStack() as stack:
        idle, reporting = (
            stack.enter_context(closing(ShareChannel(("127.0.0.1", port), server.key, slot, "worker")))
            for slot in (3, 4)
        )
        assert {server.events.get(timeout=10) for _ in range(2)} == {Began(3), Began(4)}
        proxy.drop()
        reporting.report(Committed(4, 1, [], {}))
        for share in (idle, reporting):
            eventually(share.is_ending, "the share's end", within_s=20)
            with pytest.raises(ContainerGone):
                share.finish(is_drained=False)
        eventually(lambda: not at_work(), "the end of the connections at the container's end", within_s=20)


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "grete-share"]


def test_a_share_that_is_gone_without_a_word_is_lost_and_one_that_was_replaced_or_asked_to_end_is_not(
    server: ShareServer,
) -> None:
    with closing(channel(server)):
        with closing(channel(server)):
            assert [server.events.get(timeout=10) for _ in range(2)] == [Began(3), Began(3)]
        assert server.events.get(timeout=10) == Lost(3)
    with closing(channel(server)):
        assert server.events.get(timeout=10) == Began(3)
        server.end_all()
    eventually(lambda: not at_work(), "the end of the connections")
    assert server.events.empty()


def test_a_share_whose_container_is_gone_ends_as_failed() -> None:
    with ShareServer(lambda slot: START, "127.0.0.1", "127.0.0.1") as server:
        share = channel(server)
    with closing(share):
        eventually(share.is_ending, "the end")
        share.report(Committed(3, 1, [], {}))
        with pytest.raises(ContainerGone, match="begins again"):
            share.finish(is_drained=False)


def test_a_share_that_comes_after_the_end_is_not_let_in(server: ShareServer) -> None:
    server.end_all()
    with closing(channel(server)) as late:
        assert late.start is None


def test_a_second_attempt_at_a_share_ends_the_first(server: ShareServer) -> None:
    with closing(channel(server)) as lost, closing(channel(server)) as second:
        eventually(lost.is_ending, "the first attempt's end")
        assert not second.is_ending()


def test_without_the_key_nothing_is_told(server: ShareServer) -> None:
    with pytest.raises(JobError, match=r"slot 3: the container at 127.0.0.1:.* does not know it"):
        channel(server, key=b"another")
    assert server.events.empty()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 2**31), struct.pack(">I", 4) + b"{}{}"]
)
def test_a_stranger_disturbs_nobody(server: ShareServer, sent: bytes) -> None:
    with socket.create_connection(server.address, 10) as stranger:
        stranger.sendall(sent)
        with closing(channel(server)) as share:
            assert share.start == START
    assert server.events.get(timeout=10) == Began(3)


def test_a_thousand_silent_connections_keep_no_share_from_being_served(server: ShareServer) -> None:
    """Those that say nothing give way to later ones."""
    with ExitStack() as stack:
        first = stack.enter_context(closing(channel(server)))
        for _ in range(1_000):
            stack.enter_context(socket.create_connection(server.address, 10))
        second = stack.enter_context(closing(channel(server)))
        assert second.start == START
        eventually(first.is_ending, "the first attempt's end")
        serving = [thread for thread in threading.enumerate() if thread.name == "grete-share"]
        assert len(serving) < 200
    assert server.events.get(timeout=10) == Began(3)


OUT_OF_FILES = """
import os, resource, socket
from contextlib import closing
from grete.container.share_server import ShareServer
from grete.tasks.share_channel import ShareChannel
from grete.tasks.shares import ShareStart

start = ShareStart("l", 3, (7,), {}, {}, 0, -1)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
with (
    ShareServer(lambda slot: start, "127.0.0.1", "127.0.0.1") as server,
    socket.socket() as early,
    socket.socket() as late,
):
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    early.connect(server.address)  # for which accept() has a file already
    late.connect(server.address)
    late.settimeout(0.3)
    try:
        late.recv(1)
    except TimeoutError:
        print("not served")
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    late.settimeout(10)
    assert late.recv(1), "it is spoken to"
    with closing(ShareChannel(server.address, server.key, 3, "worker")) as share:
        assert share.start == start
    print("served")
"""


def test_shares_are_served_after_a_time_without_free_files() -> None:
    """The listener goes on where the process could open no more files for a while.

    In a process of its own: threads of other tests close files, and then there is a free one.
    """
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_FILES], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.splitlines() == ["not served", "served"], ended.stderr
