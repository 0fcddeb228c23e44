"""A map of the world's towns: search, routes, countries and one's own lists, in plain WSGI over one
SQLite file.
"""
