"""Settings that are passed on to Spark."""

from __future__ import annotations

import os
import re
from functools import cached_property

from grete.config.key_tables import streams as keys
from grete.config.settings.deploy import requested_resources
from grete.config.settings.section import OptionalSetting, Section, Setting


class SparkSettings(Section):
    """`spark.*`."""

    master = Setting(keys.SPARK_MASTER)
    time_zone = OptionalSetting(keys.SPARK_TIME_ZONE)

    @property
    def is_local(self) -> bool:
        """Whether executors are on this machine, and see its files, environment and packages."""
        return self.master.startswith("local")

    @cached_property
    def options(self) -> dict[str, str]:
        """Every `spark.*` key and its value, as they are written; on a cluster after what else asks for resources."""
        written = {key: value for key, value in self.raw.items() if key.startswith("spark.")}
        return written if local_cores(self.master) is not None else requested_resources(self.raw) | written

    @cached_property
    def cores(self) -> int | None:
        """The cores that a container gets; None where that is left to the cluster."""
        if (local := local_cores(self.master)) is not None:
            return local
        if (cores := self.options.get("spark.cores.max", "")).isdecimal():
            return max(1, int(cores))
        each, executors = (self.options.get(f"spark.executor.{name}", "") for name in ("cores", "instances"))
        return max(1, int(each) * int(executors)) if each.isdecimal() and executors.isdecimal() else None


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at once; None for one whose tasks run in processes of their own."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else max(1, int(found[1] or "1"))
