"""Log records, exceptions, starts and exits of a process, written to streams (S2-120 to S2-122)."""
