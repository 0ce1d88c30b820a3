"""Azure Storage: blobs with leases, and tables. The only way in which it is reached."""
