"""`palestra report`: the results of runs as one page without scripts, Markdown, pictures and
numbers.
"""
