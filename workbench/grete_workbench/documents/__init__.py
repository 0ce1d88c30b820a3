"""Pages of the documentation that are made from code: `make docs` writes them, `make lint` compares them."""
