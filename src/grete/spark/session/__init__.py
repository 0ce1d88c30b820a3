"""The Spark session of a container: its JVM, its settings, its libraries, its Python workers."""
