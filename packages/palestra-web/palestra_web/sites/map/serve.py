"""Serve the map: `python -m map.serve`."""

from wsgi_common import instance
from wsgi_common.server import Instanced, serve

from .app import application, login

if __name__ == "__main__":
    serve(
        Instanced(
            lambda environ, start_response: application(
                instance.current.get(), environ, start_response
            ),
            lambda user: login(instance.current.get(), user),
        )
    )
