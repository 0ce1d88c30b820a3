"""What of a Samza job carries over: key by key from its configuration, task by task from its streams."""
