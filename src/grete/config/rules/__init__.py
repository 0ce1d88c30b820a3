"""Rules over a whole configuration: what is wrong, unsupported, doubtful, and which changes are refused."""
