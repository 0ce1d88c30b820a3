"""What a new user writes with each framework to see a first result of his own: see `benchmarks.first_result`."""
