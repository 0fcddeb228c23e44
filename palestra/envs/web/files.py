"""Serves a folder on a loopback port for the lifetime of the process. Files are cached by the
browser.
"""

from __future__ import annotations

import os
import threading
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any


class _Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=86400, immutable")
        super().end_headers()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Text is UTF-8. A page that does not say so itself would be read as Windows-1252."""
        kind = super().guess_type(path)
        return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind

    def list_directory(self, path: str | os.PathLike[str]) -> BytesIO | None:
        self.send_error(404)
        return None

    def log_message(self, format: str, *given: Any) -> None:
        pass


def serve_folder(folder: Path) -> str:
    """The address of a folder's server. A process has one per folder; a fork has its own."""
    return _server(folder, os.getpid())


@cache
def _server(folder: Path, pid: int) -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
    threading.Thread(target=server.serve_forever, name=f"files-{pid}", daemon=True).start()
    return f"127.0.0.1:{server.server_port}"
