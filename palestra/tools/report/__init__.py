"""`palestra report`: what runs came to, as one page without scripts, as Markdown, as pictures and
as numbers.
"""
