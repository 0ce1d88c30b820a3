"""What people who work on grete need beside it, and its wheel does not ship.

The simulator with its planted bugs, vectors and random plans of the real Samza, fail-over trials, and whoever starts
ZooKeeper, Azurite, HDFS, YARN, Spark's standalone cluster and Kubernetes' API server. grete never imports it.
"""
