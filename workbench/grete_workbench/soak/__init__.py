"""A home of several jobs under random faults for hours, of which every output is checked: `make soak`."""
