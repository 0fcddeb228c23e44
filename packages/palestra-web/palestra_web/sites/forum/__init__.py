"""A forum of kitchen gardeners: django-spirit."""
