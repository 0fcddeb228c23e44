"""What flows through a run and what every other folder builds on: types, registries, settings,
errors, files, seeds and process groups.
"""
