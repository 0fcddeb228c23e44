"""What a run would need on so many GPUs: memory, time and a layout, worked out from shapes and
checked against what was measured.
"""
