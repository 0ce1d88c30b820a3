"""A DataFrame pipeline: its inputs, its plan, its query and its batches."""
