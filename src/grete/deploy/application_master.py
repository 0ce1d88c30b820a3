"""The program that YARN's ApplicationMaster runs; `spark-submit` takes a file, not a module.

Python looks for modules in the working folder first, where lies what the application brings, and Spark puts archives
that lie there on PYTHONPATH. With ENV_SPLIT_DEPLOYMENT_ENABLED=true in the environment, for there is no configuration
yet, they come last before anything of the framework is imported. Until then only modules that Python starts with are.
"""

import os
import sys

SPLIT_DEPLOYMENT = "ENV_SPLIT_DEPLOYMENT_ENABLED"
"""Samza's name; this one and its first are read."""
_SWITCHES = (SPLIT_DEPLOYMENT, "CLUSTER_BASED_JOB_COORDINATOR_DEPENDENCY_ISOLATION_ENABLED")


def framework_first(path: list[str], folder: str) -> list[str]:
    """The places in which modules are looked for: those that were brought into the working folder come last.

    The framework's package and Spark's own archives are brought there as well, and stay where they are, as does what
    an operator names elsewhere.
    """
    brought = [place for place in path if _is_below(folder, place) and not _is_the_frameworks(place)]
    return [*(place for place in path if place not in brought), *brought]


def _is_below(folder: str, place: str) -> bool:
    return f"{os.path.abspath(place)}{os.sep}".startswith(f"{folder}{os.sep}")


def _is_the_frameworks(place: str) -> bool:
    is_sparks = os.path.basename(place).startswith(("pyspark", "py4j-")) and place.endswith(".zip")
    return is_sparks or _is_below(sys.prefix, place) or _is_below(sys.base_prefix, place)


if __name__ == "__main__":
    if "true" in map(os.environ.get, _SWITCHES):
        sys.path[:] = framework_first(sys.path, os.getcwd())
    import runpy

    module = "container_attempt" if "--container" in sys.argv else "attempt"
    runpy.run_module(f"grete.deploy.{module}", run_name="__main__", alter_sys=True)
