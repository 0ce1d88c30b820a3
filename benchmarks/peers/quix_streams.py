"""quix-streams: one process for each core, in one consumer group; its state in RocksDB with a changelog topic."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from quixstreams import Application, State


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    seen: int = state.get("count", 0) + 1
    state.set("count", seen)
    return {"key": value["key"], "count": seen}


def echo(value: dict[str, Any]) -> dict[str, Any]:
    return {"key": value["key"], "count": value["n"]}


def run(bootstrap: str, source: str, target: str, work: str, directory: str) -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group=f"quix-{target}",
        auto_offset_reset="earliest",
        auto_create_topics=True,
        state_dir=directory,
        loglevel="WARNING",
    )
    frame = application.dataframe(application.topic(source, value_deserializer="json"))
    frame = frame.apply(count, stateful=True) if work == "count" else frame.apply(echo)
    frame.to_topic(application.topic(target, value_serializer="json"))
    application.run()


if __name__ == "__main__":
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=run, args=(*sys.argv[1:5], f"{sys.argv[5]}/{number}")
        )
        for number in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
