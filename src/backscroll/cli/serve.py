"""`backscroll serve`: the server on one command."""

import os
from importlib import import_module
from typing import Any

import click

from backscroll.cli.outcome import Failure
from backscroll.server.settings import ServerSettings, read_settings

EXTRA = "server"


@click.command(epilog="Example: backscroll serve --db chat.db --llm openai:gpt-5-mini")
@click.option("--db", metavar="FILE", help="The store; made where there is none.  [default: chat.db]")
@click.option("--config", metavar="FILE", help="Settings as TOML: docs/server.md names all of them.")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="[default: 8765]")
@click.option("--llm", metavar="NAME", help="Who answers on the page: openai:MODEL, openai:MODEL@BASE_URL.")
@click.option("--upstream", metavar="URL", help="The server behind the proxy.  [default: the one of --llm]")
@click.option("--max-tokens", type=int, metavar="N", help="Size of a context.  [default: 8000]")
@click.option("--embedder", metavar="NAME", help="[default: the store's, or local]")
@click.option("--keys", metavar="FILE", help="Ask for keys; `backscroll key` makes them.")
@click.option("--workers", type=int, metavar="N", help="Processes on the one file.  [default: 1]")
def serve(config: str | None, **given: Any) -> None:
    """Serve a memory: a proxy for chat clients at /v1, REST at /api, the web page at /."""
    settings = read_settings(given, config)
    uvicorn = _uvicorn()
    os.environ.update(settings.to_environment())  # what the workers read
    _say(settings)
    uvicorn.run(
        "backscroll.server.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        server_header=False,
        access_log=False,
    )


def _say(settings: ServerSettings) -> None:
    click.echo(f"Backscroll at http://{settings.host}:{settings.port}/, lines in {settings.db}", err=True)
    if not settings.keys:
        click.echo("without keys: only this machine may ask", err=True)


def _uvicorn() -> Any:
    try:
        import_module("fastapi")
        return import_module("uvicorn")
    except ImportError as error:
        raise Failure(f"the server's packages are not installed: pip install 'backscroll[{EXTRA}]'") from error
