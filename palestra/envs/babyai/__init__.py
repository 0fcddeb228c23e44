"""BabyAI: all levels of the grid world as text with macro actions."""
