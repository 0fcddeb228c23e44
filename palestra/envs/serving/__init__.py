"""Where environments run: in this process, in worker processes, in a sandbox or behind a server."""
