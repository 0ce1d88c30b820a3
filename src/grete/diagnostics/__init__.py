"""What a process tells of itself through streams: log records, exceptions, starts and exits (S2-120 to S2-122)."""
