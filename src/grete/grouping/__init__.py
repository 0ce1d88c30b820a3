"""How SSPs become tasks and tasks become containers. Pure functions over values."""
