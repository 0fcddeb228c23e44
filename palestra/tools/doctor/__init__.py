"""`palestra doctor`: is a run right, and does it fit, before hours are spent on it.

Each check takes what it examines.
"""
