"""The embedded system: streams in SQLite files."""
