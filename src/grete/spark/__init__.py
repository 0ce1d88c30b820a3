"""The data plane. The only package that imports pyspark."""
