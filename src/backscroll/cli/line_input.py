"""Lines as they are typed: with editing, history and completion in a terminal, plain from a pipe."""

import sys
from collections.abc import Callable, Iterator, Sequence

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


def typing(said: Sequence[str], commands: Sequence[str]) -> Callable[[], str]:
    """What asks a terminal for a line.

    Args:
        said: what the arrow keys bring back, oldest first. It is kept in memory alone, so that what is deleted from
            the store is in no other file.
        commands: what Tab completes.

    Returns: a function that raises EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C.
    """
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        "> ",
        history=InMemoryHistory(said),
        completer=WordCompleter(list(commands), sentence=True),
        complete_while_typing=False,
        key_bindings=keys,
    )
    return session.prompt


def piped() -> Iterator[str]:
    """The lines of stdin, one after the other as they come. Raises: UsageError where they are not UTF-8."""
    try:
        for line in iter(sys.stdin.buffer.readline, b""):
            yield line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin is not UTF-8: {error}") from error
