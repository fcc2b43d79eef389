"""How a command ends when it does not end well: one line on stderr and an exit code.

An exit code of 0 says that it is done; 1 that it is done, and what was looked for is not well (`check`), or the answer
was no (`delete`); 2 that it is not done, since what was given is wrong or something is missing; 130 that Ctrl-C
interrupted it: what was acknowledged is stored.
"""

from typing import IO, Any

import click

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as shells have it


class Failure(click.ClickException):
    """The command could not do what it was asked to do."""

    exit_code = 2
    prefix = "error"

    def show(self, file: IO[Any] | None = None) -> None:
        """Say it in one line."""
        click.echo(f"{self.prefix}: {' '.join(self.message.split())}", file=file, err=file is None)


class Interrupted(Failure):
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED_EXIT_CODE
    prefix = "interrupted"
