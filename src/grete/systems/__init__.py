"""The system port: streams of input and output systems, how they are described, read and written."""
