"""Implementations of each port, of a page each, that no file of the product names: all that a plug-in takes."""

from grete.model.capabilities import Capabilities, SystemType

SYSTEM = SystemType(
    opens="tests.toys.system:open_system",
    capabilities=Capabilities(),
    coordinator_log="tests.toys.log:open_coordinator_log",
    coordination="toy",
)
SYSTEM_KEY = "systems.toy.path"
ENTRY_POINTS = """\
[grete.systems]
toy = tests.toys:SYSTEM
[grete.coordination]
toy = tests.toys.coordination:open_coordination
[grete.checkpoints]
toy = tests.toys.checkpoints:FolderCheckpointStore
[grete.launchers]
toy = tests.toys.launcher:open_launcher
[grete.ssp_groupers]
by-stream = tests.toys.groupers:by_stream
[grete.task_name_groupers]
in-blocks = tests.toys.groupers:in_blocks
[grete.probes]
toy = tests.toys.probe:findings
"""
