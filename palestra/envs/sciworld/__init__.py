"""SciWorld: ScienceWorld's tasks in a simulated house, one Java process for many games."""
