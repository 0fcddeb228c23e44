"""Serve the code host: `python -m code_host.serve`."""

import os
from pathlib import Path

from wsgi_common import instance
from wsgi_common.server import Instanced, serve

from .app import Application, login

if __name__ == "__main__":
    application = Application(Path(os.environ["SITE_BASE"]))
    serve(
        Instanced(
            lambda environ, start_response: application(
                instance.current.get(), environ, start_response
            ),
            lambda user: login(instance.current.get(), user),
        )
    )
