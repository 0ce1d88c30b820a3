"""Leadership and cells on ZooKeeper, through kazoo."""
