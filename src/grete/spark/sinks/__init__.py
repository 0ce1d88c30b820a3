"""Where a DataFrame pipeline's outputs go."""
