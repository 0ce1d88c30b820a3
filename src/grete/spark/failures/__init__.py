"""What Spark's errors mean, as errors of grete."""
