"""One suite per port. A back end subclasses it and says how to open one; the tests run unchanged."""
