"""``acts setup``, ``keygen``, ``codec-server`` and ``storage``: for people who operate the engine."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.filesize import decimal

from acts.activities.run_setup import registered_types, value_type
from acts.cli.command_line import AsJson, CommandGroup, read_seconds
from acts.cli.console import EXIT_DONE, command_error, count_text, print_err, print_json, print_out
from acts.cli.runs import server
from acts.cli.runs.signing import create_key
from acts.payloads.codec import KEY_BYTES, AesGcmCodec, CodecError, codec_from_environment
from acts.payloads.codec import VARIABLE as CODEC_KEYS
from acts.payloads.codec_server import TOKEN_VARIABLE, create_server
from acts.payloads.converter import VARIABLE as STORAGE
from acts.payloads.converter import driver_from_environment
from acts.payloads.storage_gc import Inventory, delete_unused, find_unused
from acts.payloads.stores import sha256
from acts.tree.search_attributes import TYPES

if TYPE_CHECKING:
    from acts.payloads.stores import ContentStore

# Of `acts dev` and `temporal server start-dev`
WEB_UI: Final = ("http://localhost:8233", "http://127.0.0.1:8233")
# Below this, a program that has stored a value and not yet reported it could lose it
_SHORT_GRACE_SECONDS: Final = 3600.0

ShowOnly = Annotated[bool, typer.Option("--show", help="Print the commands for an administrator; change nothing.")]
KeyFile = Annotated[str | None, typer.Argument(metavar="FILE", help="Where the private key is written.")]
CodecKey = Annotated[bool, typer.Option("--codec", help="A key for ACTS_CODEC_KEYS instead.")]
CodecHost = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
CodecPort = Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0: a free port.")]
CodecOrigins = Annotated[
    list[str] | None,
    typer.Option("--origin", metavar="URL", help="The Web UI whose pages may ask (default: http://localhost:8233)."),
]
Delete = Annotated[bool, typer.Option("--delete", help="Delete what is unused; without it, only count.")]
Grace = Annotated[str, typer.Option(metavar="TIME", help="Leave what was used within this time, like 12h or 7d.")]

app = CommandGroup()
storage = CommandGroup("storage", "Values that ACTS_STORAGE keeps outside of histories.")
app.add_typer(storage)


@app.add
async def setup(show: ShowOnly = False) -> int:
    """Prepare a namespace: register the search attributes by which runs are found."""
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
    from temporalio.service import RPCError

    if show:
        for name, type_ in TYPES.items():
            print_out(f"temporal operator search-attribute create --name {name} --type {type_}")
        return EXIT_DONE
    client = await server.connect()
    hint = "an administrator can: `acts setup --show` prints the commands"
    try:
        present = await registered_types(client)
        wrong = [n for n in TYPES if n in present and present[n] != value_type(n)]
        if wrong:
            head = f"the namespace {client.namespace!r} has {', '.join(wrong)} with another type"
            raise command_error(head, hint="remove it, or use another namespace; runs work without, and are not found")
        missing = {name: value_type(name) for name in TYPES if name not in present}
        if missing:
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
            await client.operator_service.add_search_attributes(request, timeout=server.RPC)
    except RPCError as error:
        head = f"the search attributes of {client.namespace!r} cannot be registered: {error.message}"
        raise command_error(head, hint=hint) from None
    done = f"registered {', '.join(missing)}" if missing else "has all search attributes"
    print_err(f"namespace {client.namespace}: {done}; runs that start from now on (within a minute) have them")
    return EXIT_DONE


@app.add
def keygen(file: KeyFile = None, codec: CodecKey = False) -> int:
    """Make a key: of an approver, for `acts approve --key`; or for payloads (--codec).

    The private key goes to FILE, which nobody else may read; the line for ACTS_APPROVERS is printed. With --codec, the
    line for the file of ACTS_CODEC_KEYS is printed.

    Examples: `acts keygen ada.pem`, `acts keygen --codec >> keys.txt`.
    """
    if codec:
        print_out(f"k{datetime.now(UTC):%Y%m%d%H%M%S} {base64.b64encode(os.urandom(KEY_BYTES)).decode()}")
        return EXIT_DONE
    if file is None:
        raise command_error("a file for the private key is missing", hint="like `acts keygen ada.pem`")
    path = Path(file)
    try:
        public = create_key(path)
    except FileExistsError:
        raise command_error(f"{path} is there already", hint="a key is never overwritten: name another file") from None
    except OSError as error:
        raise command_error(f"{path} cannot be written: {error.strerror}") from None
    print_err(f"{path} is the private key: only the approver needs it. For the file of ACTS_APPROVERS:")
    print_out(f'"{path.stem}": "{base64.b64encode(public).decode()}"')
    return EXIT_DONE


@app.add
def codec_server(host: CodecHost = "127.0.0.1", port: CodecPort = 8081, origin: CodecOrigins = None) -> int:
    """Decrypt payloads for the Web UI and for `temporal`, with the keys of ACTS_CODEC_KEYS.

    In the Web UI: the glasses in the upper right corner, endpoint http://127.0.0.1:8081. With `temporal`:
    --codec-endpoint. On another address than this machine's own, ACTS_CODEC_TOKEN is required.
    """
    origins = tuple(origin or WEB_UI)
    try:
        codec = codec_from_environment()
        if not isinstance(codec, AesGcmCodec):
            hint = "set it to the keys of the workers: docs/encryption.md"
            raise command_error(f"{CODEC_KEYS} is not set", hint=hint)
        codec_http = create_server(codec, host, port, origins, os.environ.get(TOKEN_VARIABLE))
    except CodecError as error:
        raise command_error(str(error)) from None
    except OSError as error:
        raise command_error(f"cannot listen on {host}:{port}: {error.strerror}", hint="--port names another") from None
    with codec_http:
        address = f"http://{host}:{codec_http.server_address[1]}"
        print_err(f"codec server at {address} for pages of {', '.join(origins)}; Ctrl-C stops it")
        try:
            codec_http.serve_forever()
        except KeyboardInterrupt:
            return EXIT_DONE
    return EXIT_DONE


# -- stored values -----------------------------------------------------------------------------------------------------


@storage.add
async def gc(delete: Delete = False, grace: Grace = "1d", as_json: AsJson = False) -> int:
    """Find stored values that nothing refers to any more, and delete them.

    It reads all runs and schedules that the namespace still keeps. What they refer to stays, and so does what was
    used lately. Without --delete it changes nothing.
    """
    seconds = read_seconds(grace, "--grace") or 0.0
    store = _store()
    client = await server.connect()
    began, cutoff = time.monotonic(), datetime.now(UTC) - timedelta(seconds=seconds)
    if seconds < _SHORT_GRACE_SECONDS:
        print_err("a grace period below 1h is safe only while no worker and no client stores values", "yellow")
    inventory = await find_unused(client, store, timedelta(seconds=seconds))
    if delete:
        await delete_unused(store, inventory, cutoff)
    if as_json:
        return print_json(_figures(inventory, store, client.namespace, deleted=len(inventory.unused) if delete else 0))
    used = len(inventory.contents) - len(inventory.unused) - inventory.young
    about = f"{store.describe()}, namespace {client.namespace}"
    print_out(f"{about}: {count_text(len(inventory.contents), 'value')}, {decimal(inventory.bytes)}")
    read = f"{count_text(inventory.runs, 'run')} and {count_text(inventory.schedules, 'schedule')}"
    print_out(f"  in use      {used:>8,}   by {read}, read in {time.monotonic() - began:.1f} s")
    print_out(f"  too young   {inventory.young:>8,}   used within the grace period")
    print_out(f"  unused      {len(inventory.unused):>8,}   {decimal(inventory.unused_bytes)}")
    if delete:
        print_out(f"deleted {len(inventory.unused):,}")
    elif inventory.unused:
        print_out("nothing was deleted: add --delete")
    return EXIT_DONE


@storage.add
async def check(as_json: AsJson = False) -> int:
    """Write, read and delete a small value, and count what is stored."""
    store = _store()
    client = await server.connect()
    inventory = await asyncio.to_thread(_try_store, store, client.namespace)
    if as_json:
        return print_json(_figures(inventory, store, client.namespace))
    text = f"{count_text(len(inventory.contents), 'value')}, {decimal(inventory.bytes)}"
    print_out(f"{store.describe()} can be written to and read; namespace {client.namespace}: {text}")
    return EXIT_DONE


def _try_store(store: ContentStore, namespace: str) -> Inventory:
    """Store a value, read, list and delete it; returns what else is stored."""
    data = f"acts storage check {time.time_ns()}".encode()
    if store.get(store.put(namespace, sha256(data), data)) != data:
        raise command_error(f"{store.describe()} returns other bytes than were stored")
    contents = list(store.list_contents(namespace))
    own = next((c for c in contents if c.digest == sha256(data)), None)
    if own is None:
        raise command_error(f"{store.describe()} does not list what was stored a moment ago")
    store.delete(own)  # nobody else refers to it, whenever it was stored
    contents.remove(own)
    return Inventory(contents)


def _store() -> ContentStore:
    driver = driver_from_environment()
    if driver is None:
        hint = "set it to what the worker has: file:<folder> or s3://bucket/prefix"
        raise command_error(f"{STORAGE} is not set here", hint=hint)
    return driver.contents


def _figures(inventory: Inventory, store: ContentStore, namespace: str, deleted: int = 0) -> dict[str, object]:
    return {
        "storage": store.describe(), "namespace": namespace, "values": len(inventory.contents),
        "bytes": inventory.bytes, "young": inventory.young, "unused": len(inventory.unused),
        "unusedBytes": inventory.unused_bytes, "runs": inventory.runs, "schedules": inventory.schedules,
        "deleted": deleted,
    }  # fmt: skip
