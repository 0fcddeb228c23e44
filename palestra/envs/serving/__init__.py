"""Where environments run: in this process, or in a pool of worker processes."""
