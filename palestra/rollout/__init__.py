"""Where an agent meets an environment: episodes, groups of them, and evaluations."""
