"""``acts codec-server``: what the Web UI asks to decrypt payloads."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cli.command_errors import EXIT_DONE, command_error
from cli.console import print_err
from connection.codec import AesGcmCodec, codec_from_environment
from connection.codec_keys import VARIABLE, CodecError
from connection.codec_server import TOKEN_VARIABLE, CodecServerError, CodecServerSettings, create_server


def serve(host: str, port: int, origins: Sequence[str]) -> int:
    """Serve until interrupted."""
    try:
        codec = codec_from_environment()
        settings = CodecServerSettings(host, port, origins, os.environ.get(TOKEN_VARIABLE))
    except (CodecError, CodecServerError) as error:
        raise command_error(str(error)) from None
    if not isinstance(codec, AesGcmCodec):
        raise command_error(f"{VARIABLE} is not set", hint="set it to the keys of the workers: docs/encryption.md")
    try:
        server = create_server(codec, settings)
    except OSError as error:
        raise command_error(f"cannot listen on {host}:{port}: {error.strerror}", hint="--port names another") from None
    with server:
        address = f"http://{host}:{server.server_address[1]}"
        print_err(f"codec server at {address} for pages of {', '.join(origins)}; Ctrl-C stops it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return EXIT_DONE
    return EXIT_DONE
