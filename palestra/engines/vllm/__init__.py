"""vLLM as an engine, in process or as servers, with weights that are compared after each sync."""
