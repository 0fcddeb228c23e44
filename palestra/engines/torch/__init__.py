"""The in-process engine: torch inference on the learner's own weights, on CUDA in captured graphs."""
