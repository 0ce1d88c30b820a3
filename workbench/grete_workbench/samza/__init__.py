"""What the real Samza does and the product has no use for: vectors and tests beside the real one compare with it."""
