"""Pages of jobs for a browser: what the command line shows and does, with the same code, on a page."""
