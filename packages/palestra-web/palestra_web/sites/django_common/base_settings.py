"""Settings that every Django site begins with: `from django_common.base_settings import *`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

BASE = Path(os.environ["SITE_BASE"])
"""The seeded folder: `base.sqlite3`, and the static files."""

SECRET_KEY = "sessions of a site on loopback, thrown away with each episode"  # noqa: S105
DEBUG = False
ALLOWED_HOSTS = [".test", "127.0.0.1", "localhost"]
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django_common.sqlite_instance",
        "NAME": "the file of the instance",
        "CONN_MAX_AGE": 0,
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = []
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
LANGUAGES = [("en-us", "English")]
STATIC_URL = "/static/"
STATIC_ROOT = str(BASE / "static")
MEDIA_URL = "/media/"
MEDIA_ROOT = str(BASE / "media")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
