"""The system port: what an input or output system says of its streams and how they are read and written."""
