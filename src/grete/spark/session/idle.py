"""Spark's context in an application that needs none, but whose cluster manager ends it without."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext

_RESTING = {
    "spark.executor.instances": "0",
    "spark.dynamicAllocation.enabled": "false",
    "spark.ui.enabled": "false",
}
"""`spark-submit` refuses an application without executors; its ApplicationMaster, which asks for them, does not."""


def start_idle_context(name: str) -> None:
    """Start a context without executors, in which nothing is run."""
    SparkContext(conf=SparkConf().setAppName(name).setAll(list(_RESTING.items())))
