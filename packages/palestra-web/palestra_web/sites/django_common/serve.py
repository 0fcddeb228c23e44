"""Serve a Django site: `python -m django_common.serve shop` takes `shop.settings`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import django
from django_common import clock
from wsgi_common.server import Instanced, serve


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = f"{sys.argv[1]}.settings"
    clock.stand_still()
    django.setup()

    from django.conf import settings
    from whitenoise import WhiteNoise

    site = WhiteNoise(Instanced(_django(), log_in), max_age=3600)
    site.add_files(settings.STATIC_ROOT, prefix=settings.STATIC_URL)
    serve(site)


def _django() -> Any:
    from django.core.wsgi import get_wsgi_application
    from django.db import connections

    handler = get_wsgi_application()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        connections.close_all()  # whatever this thread did before was another instance's
        return handler(environ, start_response)

    return answer


def log_in(user: str) -> dict[str, str]:
    """A session of `user` (name or e-mail address), as if they had gone through the form."""
    from django.conf import settings
    from django.contrib.auth import (
        BACKEND_SESSION_KEY,
        HASH_SESSION_KEY,
        SESSION_KEY,
        get_user_model,
    )
    from django.contrib.sessions.backends.db import SessionStore
    from django.db import connections
    from django.db.models import Q

    connections.close_all()
    found = get_user_model().objects.filter(Q(username=user) | Q(email=user)).first()
    if found is None:
        raise LookupError(f"there is no user {user!r}")
    session = SessionStore()
    session[SESSION_KEY] = str(found.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = found.get_session_auth_hash()
    session.create()
    connections.close_all()
    return {settings.SESSION_COOKIE_NAME: session.session_key}


if __name__ == "__main__":
    main()
