"""Django's SQLite backend, for many files under one name."""
