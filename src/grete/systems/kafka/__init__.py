"""Kafka as a system of streams."""
