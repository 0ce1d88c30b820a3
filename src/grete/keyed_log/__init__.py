"""The keyed log port and its back ends: durable, ordered, keyed, fenced."""
