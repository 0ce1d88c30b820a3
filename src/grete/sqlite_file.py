"""One SQLite file, opened the only way that keeps our promises (RELIABILITY rule 10).

Every embedded store (keyed log, leadership, streams, task stores) goes through here, so that version gate, file
system check, pragmas, transactions and the translation of SQLite's errors exist once.
"""
