"""Commands for keys and encrypted payloads. The command line only: what a command does is imported when it runs."""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from cli.options import CodecHost, CodecKey, CodecOrigins, CodecPort, KeyFile
from cli.program import ExitCode, command

# Of `acts dev` and `temporal server start-dev`
WEB_UI = ("http://localhost:8233", "http://127.0.0.1:8233")


@command
def keygen(file: KeyFile = None, codec: CodecKey = False) -> ExitCode:
    """Make a key: of an approver, for `acts approve --key`; or for payloads (--codec).

    The private key goes to FILE, which nobody else may read; the line for ACTS_APPROVERS is printed. With --codec, the
    line for the file of ACTS_CODEC_KEYS is printed.

    Examples: `acts keygen ada.pem`, `acts keygen --codec >> keys.txt`.
    """
    from cli.commands import keygen as implementation

    return implementation.keygen(file, codec=codec)


@command
def codec_server(host: CodecHost = "127.0.0.1", port: CodecPort = 8081, origin: CodecOrigins = None) -> ExitCode:
    """Decrypt payloads for the Web UI and for `temporal`, with the keys of ACTS_CODEC_KEYS.

    In the Web UI: the glasses in the upper right corner, endpoint http://127.0.0.1:8081. With `temporal`:
    --codec-endpoint. On another address than this machine's own, ACTS_CODEC_TOKEN is required.
    """
    from cli.commands import serve_codec as implementation

    return implementation.serve(host, port, tuple(origin or WEB_UI))
