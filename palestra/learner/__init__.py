"""Gradient steps: log-probs, precision, parallelism and checkpoints."""
