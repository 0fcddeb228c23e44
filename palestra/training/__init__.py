"""The training loop, what sets it up, and where its data comes from."""
