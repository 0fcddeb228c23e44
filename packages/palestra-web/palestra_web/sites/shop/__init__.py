"""The shop: django-oscar with its dashboard."""
