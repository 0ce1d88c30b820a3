"""The table of configuration keys, a file a subject. `grete.config.keys` joins them."""
