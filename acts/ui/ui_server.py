"""``acts ui`` as a server: a socket that listens, and uvicorn on it. `acts dev` has it in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Final

import uvicorn

from acts.client import server
from acts.client.client_errors import ClientError
from acts.client.server import ServerTarget
from acts.language.errors import clean
from acts.ui.access import Access
from acts.ui.app import make_app

PORT: Final = 8234  # the next one to Temporal's Web UI
GRACE_SECONDS: Final = 2  # for answers that are on their way; those who follow a run come back


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 is a free one. ClientError: it cannot be used."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        hint = "choose another one with --port"
        raise ClientError(f"{clean(host, 100)}:{port} cannot be used: {error.strerror}", hint) from None


async def serve(listening: socket.socket, access: Access, target: ServerTarget | None = None) -> None:
    """Serve until a signal ends it. ClientError: no Temporal server answers."""
    app = make_app(await server.connect(target), access)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS, lifespan="off",
    )  # fmt: skip
    own = uvicorn.Server(config)
    with listening:
        serving = asyncio.ensure_future(own.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:  # it lets go of the socket before that is closed
            own.should_exit = True
            await serving
            raise


def serve_beside(target: ServerTarget) -> str:
    """Serve in a thread that ends with the process, at port 8234 or a free one; the address to open."""
    try:
        listening = listen(server.HOST, PORT)
    except ClientError:
        listening = listen(server.HOST, 0)
    access = Access(server.HOST, listening.getsockname()[1], {})

    def run() -> None:
        try:
            asyncio.run(serve(listening, access, target))
        except ClientError as error:
            logging.getLogger(__name__).warning("the inbox is not served: %s", error)

    threading.Thread(target=run, name="acts-ui", daemon=True).start()
    return access.link(server.HOST)
