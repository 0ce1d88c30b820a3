"""One container without an engine: assignment, start, heartbeat, rewinds, standby copies."""
