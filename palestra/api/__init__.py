"""The Python API: train, evaluate, and read runs. `import palestra` exports it."""
