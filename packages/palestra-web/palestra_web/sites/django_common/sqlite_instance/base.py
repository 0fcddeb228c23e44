"""Django keeps its one database `default`; which file that is depends on the request."""

from __future__ import annotations

from typing import Any

from django.db.backends.sqlite3 import base
from wsgi_common import instance


class DatabaseWrapper(base.DatabaseWrapper):
    """Opens the current instance's file. Needs `CONN_MAX_AGE = 0`: a connection must not outlive
    its request.
    """

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params["database"] = str(instance.current.get())
        return params
