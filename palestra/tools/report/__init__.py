"""Reports on the results of runs: one page without scripts, Markdown, pictures and numbers."""
