"""The coordination port: leadership with epochs, on the store you already have."""
