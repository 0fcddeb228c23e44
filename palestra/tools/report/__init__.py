"""Reports: what runs came to, for people, as one page without scripts, as Markdown, as pictures and
as numbers.
"""
