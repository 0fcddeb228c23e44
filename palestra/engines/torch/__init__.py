"""The in-process engine: torch inference on the learner's weights, with CUDA graphs on a GPU."""
