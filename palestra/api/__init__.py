"""The Python API, which `import palestra` exports: train, evaluate, and read runs."""
