"""The lineages of a pipeline: where they are kept, which one is current, and where Spark stands in it."""
