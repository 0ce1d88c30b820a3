"""Configuration: the table of keys, loaders, rewriters, validation."""
