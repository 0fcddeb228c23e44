"""`palestra doctor`: whether a run is right, and whether it fits, before hours are spent on it.

Each check takes what it examines.
"""
