"""A system, a keyed log and an election of a few pages, that no file of the product names: what a back end takes."""

from grete.model.capabilities import Capabilities, SystemType

SYSTEM = SystemType(
    opens="tests.toys.system:open_system",
    capabilities=Capabilities(),
    coordinator_log="tests.toys.log:open_coordinator_log",
    coordination="toy",
)
ENTRY_POINTS = """\
[grete.systems]
toy = tests.toys:SYSTEM
[grete.coordination]
toy = tests.toys.coordination:open_coordination
"""
