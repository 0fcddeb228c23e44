"""Where environments run: in this process, or each in a worker process of its own."""
