"""`backscroll serve` and `keys`: the server, and who may ask it."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from backscroll.cli.options import counted, json_option, json_text
from backscroll.cli.outcome import Failure
from backscroll.cli.screen import print_table, table
from backscroll.server.keys import DEFAULT_TENANT, Keyring, add_key, read_keys, remove_key
from backscroll.server.logs import log_config
from backscroll.server.settings import KEEP_ALIVE_SECONDS, ServerSettings, base_url_of, read_settings
from backscroll.wiring import open_memory

EXTRA = "server"


@click.command(epilog="Example: backscroll serve --db chat.db --llm openai:gpt-5-mini")
@click.option("--db", metavar="FILE", help="The store; made where there is none.  [default: chat.db]")
@click.option("--config", metavar="FILE", help="Settings as TOML; docs/server.md names all of them.")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="[default: 8765]")
@click.option("--llm", metavar="NAME", help="Who answers on the page: openai:MODEL, openai:MODEL@BASE_URL.")
@click.option("--upstream", metavar="URL", help="The server behind the proxy.  [default: the one of --llm]")
@click.option("--max-tokens", type=int, metavar="N", help="Size of a context.  [default: 8000]")
@click.option("--embedder", metavar="NAME", help="[default: the store's, or local]")
@click.option("--channels", metavar="NAMES", help="Answer by these too: sms, by Twilio.")
@click.option("--keys", metavar="FILE", help="Ask for keys; `backscroll keys add` makes them.")
@click.option("--workers", type=int, metavar="N", help="Processes on the one file.  [default: 1]")
def serve(config: str | None, **given: Any) -> None:
    """Serve a memory: a proxy for chat clients at /v1, REST at /api, the web page at /.

    Every setting may also stand in the environment, as BACKSCROLL_MAX_TOKENS, or in a TOML file. Ctrl-C lets what is
    being answered finish.
    """
    settings = read_settings(given, config)
    uvicorn = _uvicorn()
    _try(settings)
    _check_channels(settings)
    os.environ.update(settings.to_environment())  # what the workers read
    _say(settings)
    with _shared_numbers(settings.workers):
        uvicorn.run(
            "backscroll.server.app:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            log_config=log_config(settings.log_level, settings.log_format),
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.shutdown_seconds,
            server_header=False,
            access_log=False,  # it names addresses with their queries
        )


@click.group(epilog="Example: backscroll keys add --help")
def keys() -> None:
    """Make, list and remove the keys that a server asks for."""


_keys_option = click.option("--keys", "path", required=True, metavar="FILE", help="The file of the keys' hashes.")


@keys.command(epilog="Example: backscroll keys add --keys keys.json --tenant acme")
@_keys_option
@click.option("--tenant", default=DEFAULT_TENANT, metavar="NAME", help="Whose store it opens.  [default: default]")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
def add(path: str, tenant: str, note: str) -> None:
    """Make a key, and print it: it is kept nowhere else. A server that is running takes it at once."""
    secret, key = add_key(path, tenant, note)
    click.echo(secret)
    click.echo(f"key {key.id} of tenant {tenant}: keep it now, {path} has only its hash", err=True)


@keys.command("list")
@_keys_option
@json_option
def list_keys(path: str, as_json: bool) -> None:
    """List the keys by what names them; the keys themselves are not known."""
    kept = [{"id": key.id, **asdict(key)} for key in read_keys(path)]
    if as_json:
        click.echo(json_text(kept))
        return
    rows = table("id", "tenant", "made", "note")
    for key in kept:
        rows.add_row(key["id"], key["tenant"], key["created_at"], key["note"])
    print_table(rows)


@keys.command()
@_keys_option
@click.argument("key_id", metavar="ID")
def remove(path: str, key_id: str) -> None:
    """Remove a key. A server that is running refuses it from now on."""
    key = remove_key(path, key_id)
    click.echo(
        f"key {key.id} of tenant {key.tenant} opens nothing any more; {counted(len(read_keys(path)), 'key')} left"
    )


def _try(settings: ServerSettings) -> None:
    """Open everything once, so that what is missing is said in a line before anything listens."""
    base_url_of(settings)
    if settings.keys and not Keyring(settings.keys).count():
        raise Failure(f"{settings.keys} has no key: make one by `backscroll keys add --keys {settings.keys}`")
    opened = open_memory(
        settings.db, embedder=settings.embedder or None, preset=settings.preset, llm=settings.llm or None
    )
    opened.close()
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        raise Failure(f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}") from error


def _say(settings: ServerSettings) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    click.echo(f"Backscroll at http://{host}:{settings.port}/, lines in {settings.db}", err=True)
    behind = base_url_of(settings)
    proxy = f"http://{host}:{settings.port}/v1 to {behind}" if behind else "none: name a server by --upstream or --llm"
    click.echo(f"proxy: {proxy}", err=True)
    if not settings.keys:
        click.echo("without keys: only this machine may ask, and it may ask everything", err=True)


@contextmanager
def _shared_numbers(workers: int) -> Iterator[None]:
    """A folder where several processes put the numbers of /metrics together."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="backscroll-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(Path(folder))
        yield


def _check_channels(settings: ServerSettings) -> None:
    """Say what a channel lacks here, rather than in a worker."""
    for name in settings.channel_names:
        import_module("backscroll.server.channels").open_channel(name)
    if settings.channel_names and not settings.llm:
        raise Failure("--channels needs a language model to answer with: --llm openai:MODEL")


def _uvicorn() -> Any:
    try:
        for needed in ("fastapi", "prometheus_client"):
            import_module(needed)
        return import_module("uvicorn")
    except ImportError as error:
        raise Failure(f"the server's packages are not installed: pip install 'backscroll[{EXTRA}]'") from error
