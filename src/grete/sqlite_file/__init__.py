"""One SQLite file, opened the only way that keeps our promises (RELIABILITY rule 10).

Every embedded store (keyed log, leadership, streams) goes through here, so that version gate, file system check,
pragmas, transactions, fences and the translation of SQLite's errors exist once.

- WAL needs SQLite 3.51.3: from 3.7.0 to 3.51.2 two connections could corrupt the file while one of them resets
  the log. Older builds get a rollback journal and a warning.
- synchronous=FULL is set and read back: with NORMAL a power cut takes back commits that were acknowledged.
- An I/O error while committing leaves the outcome unknown and the file handle unusable (fsync is never tried
  again: the kernel may have dropped the dirty pages and would say ok). The caller gets InDoubt and reopens.
- SQLite drops the rest of a write-ahead log silently when one bit in it has flipped: 45 of 100 acknowledged commits
  were left, and integrity_check said ok. So every commit is numbered, and the number is kept beside the file after
  the commit: a file that has gone back behind its mark (or was restored from an old copy) is refused.
"""

from grete.sqlite_file.fences import check_fences as check_fences
from grete.sqlite_file.fences import claim_fence as claim_fence
from grete.sqlite_file.fences import highest_epoch as highest_epoch
from grete.sqlite_file.fences import seen_epoch as seen_epoch
from grete.sqlite_file.file import SqliteFile as SqliteFile
from grete.sqlite_file.file import open_file as open_file
