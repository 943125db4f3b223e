"""A local weather service: ``GET /weather?city=Lisbon`` returns JSON.

It represents any HTTP service that an Activity may use. It starts with the first request, in a thread
of the worker, on a free port of 127.0.0.1, and ends with the worker.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

CITIES: Final = {
    "Lisbon": {"sky": "clear", "celsius": 24},
    "Seville": {"sky": "clear", "celsius": 31},
    "Bergen": {"sky": "rain", "celsius": 9},
    "Glasgow": {"sky": "rain", "celsius": 12},
}

_lock = threading.Lock()
_running: list[ThreadingHTTPServer] = []


def address() -> tuple[str, int]:
    """Host and port of the service, which the first call starts."""
    with _lock:
        if not _running:
            server = ThreadingHTTPServer(("127.0.0.1", 0), _Weather)
            threading.Thread(target=server.serve_forever, name="weather", daemon=True).start()
            _running.append(server)
        return "127.0.0.1", _running[0].server_port


class _Weather(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        city = parse_qs(urlsplit(self.path).query).get("city", [""])[0]
        weather = CITIES.get(city)
        body = json.dumps({"city": city, **weather} if weather else {"known": list(CITIES)}).encode()
        self.send_response(200 if weather else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the log is the worker's."""
