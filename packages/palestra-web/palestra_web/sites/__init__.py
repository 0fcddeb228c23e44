"""Real web applications on this machine, seeded with generated data, whose state every episode has
a copy of.
"""
