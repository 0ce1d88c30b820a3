"""Azure Event Hubs as a system of streams."""

from grete.model.capabilities import Capabilities, SystemType

SYSTEM = SystemType(
    opens="grete.systems.eventhubs.system:open_eventhubs_system",
    capabilities=Capabilities(
        keeps_state=False, consumer_groups=True, spark_connector=True, configured_by_streams=True
    ),
)
