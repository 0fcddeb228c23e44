"""The run folder: what is written there, how it is read, and what its files look like."""
