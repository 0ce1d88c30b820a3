"""The parts of a Samza job that carry over: key by key from its configuration, task by task from its streams."""
