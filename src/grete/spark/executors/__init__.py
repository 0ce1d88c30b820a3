"""Executors on other machines: what is brought to them, and what is looked at before the first batch."""
