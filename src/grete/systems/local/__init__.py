"""The embedded system: streams in SQLite files."""

from grete.model.capabilities import Capabilities, SystemType

SYSTEM = SystemType(
    opens="grete.systems.local.system:open_local_system",
    capabilities=Capabilities(is_embedded=True, remembers_origins=True),
    coordinator_log="grete.keyed_log.sqlite_coordinator_log:open_coordinator_log",
    log_sink="grete.systems.local.log_sink:StreamSink",
    coordination="sqlite",
)
