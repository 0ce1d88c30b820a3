"""Spark Connect in the driver's own JVM, for as long as an application builds its plan."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from grete.spark.jvm import java_context, jvm_of

_PREFIX = "spark.connect"


@contextmanager
def service(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The address of the service, and the token in it; only this machine reaches it.

    The token is set in the JVM, not as the session starts: that is by a command line, which everybody here can read.
    """
    jvm: Any = jvm_of(spark)
    token = secrets.token_hex(16)
    own = {"grpc.binding.address": "127.0.0.1", "grpc.binding.port": "0", "authenticate.token": token}
    settings = {f"{_PREFIX}.{name}": value for name, value in own.items()}
    known = jvm.org.apache.spark.SparkEnv.get().conf()
    before = {key: known.get(key) if known.contains(key) else None for key in settings}
    for key, value in settings.items():
        known.set(key, value)
    served = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    served.start(java_context(spark).sc())
    try:
        yield f"sc://localhost:{served.server().getPort()}/;token={token}", token
    finally:
        none = jvm.scala.Option.empty()
        served.stop(none, none)
        for key, had in before.items():
            known.remove(key) if had is None else known.set(key, had)
