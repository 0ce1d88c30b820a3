"""A worker's side of an application that has a process and an environment of its own."""
