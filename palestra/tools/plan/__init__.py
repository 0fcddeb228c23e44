"""`palestra plan`: the memory, time and layout of a run on a number of GPUs, from shapes and
measured constants.
"""
