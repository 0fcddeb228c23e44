"""The command line: `main`, and one module for each command."""
