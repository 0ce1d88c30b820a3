"""grete: a coordinator stream, job coordinator and readable checkpoints for PySpark streaming jobs."""

__version__ = "0.1.0"
