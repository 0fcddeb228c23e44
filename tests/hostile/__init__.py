"""What means harm: configurations, run folders, environments, models, files and requests."""
