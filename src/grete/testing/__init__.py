"""Shipped test support: conformance suites, the vector checker, fault wrappers, a manual clock, the simulator."""
