"""The environment that the tutorial builds: guess a number."""
