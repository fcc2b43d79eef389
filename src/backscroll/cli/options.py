"""What several commands are given, and what they name by it: the file, the user, the thread."""

import json
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from backscroll.cli.outcome import Failure
from backscroll.errors import NotFoundError
from backscroll.memory import Memory
from backscroll.protocols import MemoryStore
from backscroll.types import ThreadInfo
from backscroll.wiring import open_lines, open_memory

Command = TypeVar("Command", bound=Callable[..., Any])
Options = TypeVar("Options")
SCOPES = ("thread", "user", "all")
_MAX_NAMES = 8  # of an error

db_option = click.option(
    "--db", envvar="BACKSCROLL_DB", required=True, metavar="FILE", show_envvar=True, help="The store."
)
user_option = click.option("--user", metavar="USER", help="Whose threads; may be left out where there is one user.")
thread_option = click.option("--thread", metavar="THREAD", help="One thread of the user.")
persona_option = click.option("--persona", metavar="USER", help="Whose facts are known too: the character talked to.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


llm_option = click.option(
    "--llm", metavar="openai:MODEL", envvar="BACKSCROLL_LLM", show_envvar=True, help="The language model."
)
base_url_option = click.option("--base-url", metavar="URL", help="The model's server, up to /v1. [default: OpenAI]")


def llm_name(llm: str | None, base_url: str | None) -> str | None:
    """The model with its server, as `backscroll.open` takes it. Raises: UsageError."""
    if base_url is None:
        return llm
    if llm is None:
        raise click.UsageError("--base-url is the server of a model: name the model by --llm")
    if "@http" in llm:
        raise click.UsageError("the server is named twice, in --llm and by --base-url")
    return f"{llm}@{base_url}"


def gathered(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Hand a command its many options as one value."""

    def gather(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def run(**options: Any) -> None:
            function(kind(**options))

        return run

    return gather


def existing_lines(db: str) -> MemoryStore:
    """Open a store that is there, without an embedder. Raises: Failure, StoreError."""
    _need_file(db)
    return open_lines(db)


def existing_memory(db: str) -> Memory:
    """Open a store that is there, with the embedder of its vectors. Raises: Failure, StoreError, EmbedderError."""
    _need_file(db)
    return open_memory(db)


def only_user(store: MemoryStore, user: str | None) -> str:
    """The user that was named, or the only one. Raises: NotFoundError with the users that there are."""
    users = list(dict.fromkeys(info.user for info in store.threads(user)))
    if user is not None and not users:
        known = dict.fromkeys(info.user for info in store.threads())
        raise NotFoundError(f"there is no user {user!r}; there are {_names(known)}")
    if not users:
        raise NotFoundError("there are no lines in this store yet: `backscroll import` stores some")
    if len(users) > 1:
        raise NotFoundError(f"there are {len(users)} users, name one by --user: {_names(users)}")
    return users[0]


def need_thread(store: MemoryStore, user: str, thread: str) -> ThreadInfo:
    """What the store knows of a thread. Raises: NotFoundError with the threads that there are."""
    infos = store.threads(user)
    for info in infos:
        if info.thread == thread:
            return info
    raise NotFoundError(f"user {user!r} has no thread {thread!r}; there are {_names(info.thread for info in infos)}")


def json_text(value: Any) -> str:
    """JSON for people and programs."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "line"), counted(12000, "line")
    ('1 line', '12,000 lines')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def _need_file(db: str) -> None:
    path = db.removeprefix("sqlite:///")
    if "://" not in path and not Path(path).exists():
        raise Failure(f"{path}: there is no such file; `backscroll import` makes it")


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MAX_NAMES:,} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(listed[:_MAX_NAMES]) + more
