"""`palestra plan`: the memory, time and layout of a run on a number of GPUs, computed from shapes
and checked against measurements.
"""
