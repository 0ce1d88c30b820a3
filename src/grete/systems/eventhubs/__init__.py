"""Azure Event Hubs as a system of streams."""
