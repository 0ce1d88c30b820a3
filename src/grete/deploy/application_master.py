"""The program that YARN's ApplicationMaster runs; `spark-submit` takes a file, not a module.

Python looks for modules in the working folder first, where lies what the application brings, and then on PYTHONPATH,
where Spark puts more of it. With ENV_SPLIT_DEPLOYMENT_ENABLED=true in the environment, for there is no configuration
yet, both come last before anything of the framework is imported. Until then only modules that Python starts with are.
"""

import os
import sys

SPLIT_DEPLOYMENT = "ENV_SPLIT_DEPLOYMENT_ENABLED"
"""Samza's name; this one and its first are read."""
_SWITCHES = (SPLIT_DEPLOYMENT, "CLUSTER_BASED_JOB_COORDINATOR_DEPENDENCY_ISOLATION_ENABLED")


def framework_first(path: list[str], environment: dict[str, str]) -> list[str]:
    """The places in which modules are looked for: the program's own folder and what PYTHONPATH names come last.

    Spark's own archives stay where they are: a package of the framework has none.
    """
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    brought = {path[0], *(os.path.abspath(place) for place in named if not _is_of_spark(place))}
    return [*(one for one in path if one not in brought), *(one for one in path if one in brought)]


def _is_of_spark(place: str) -> bool:
    return os.path.basename(place).startswith(("pyspark", "py4j-")) and place.endswith(".zip")


if __name__ == "__main__":
    if "true" in map(os.environ.get, _SWITCHES):
        sys.path[:] = framework_first(sys.path, dict(os.environ))
    from grete.deploy.attempt import main

    sys.exit(main(sys.argv[1:]))
