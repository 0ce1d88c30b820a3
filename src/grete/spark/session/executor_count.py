"""How many executors an application has, and shall have."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from grete.spark.jvm import java_context, java_map, java_seq, jvm_of

_log = logging.getLogger("grete.container")


def executors(context: SparkContext) -> int:
    """The executors that have begun, without the driver."""
    return len(java_context(context).sc().statusTracker().getExecutorInfos()) - 1


def ask_for_executors(context: SparkContext, wanted: int) -> None:
    """Ask the cluster for so many, and give those back that are more; nothing is waited for.

    To be called while the application computes nothing: what is given back ends at once. A cluster that has no room
    gives them when it has some.
    """
    java, jvm = java_context(context).sc(), jvm_of(context)
    found = java.getExecutorIds()
    there = [found.apply(place) for place in range(found.size())]
    surplus = sorted(there, key=int)[wanted:]
    _log.info("%d executors, of which %d shall be", len(there), wanted)
    try:
        if surplus:  # first, since Spark takes as many off what it asks for
            java.killExecutors(java_seq(jvm, surplus))
        java.requestTotalExecutors(wanted, 0, java_map(jvm, {}))
    except Py4JJavaError as error:
        _log.warning("the cluster does not take a number of executors: %s", error.java_exception)
