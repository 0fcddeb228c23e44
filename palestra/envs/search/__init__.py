"""Deep search: questions over a corpus, answered by searching it."""
