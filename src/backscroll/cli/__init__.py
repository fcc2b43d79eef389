"""The command line `backscroll`: a memory in a file, filled, asked and looked after.

A command's module is imported when the command runs, so that `backscroll --help` is quick.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from backscroll import __version__
from backscroll.cli.outcome import Failure, Interrupted
from backscroll.errors import BackscrollError

# name -> (what it is, as module:function; what --help says of it), in the order of use
COMMANDS = {
    "import": ("backscroll.cli.storing:import_files", "Store the chats of files."),
    "context": ("backscroll.cli.asking:context", "Show the context that a question gets, and why."),
    "recall": ("backscroll.cli.asking:recall", "List the stored lines that match a query best."),
    "chat": ("backscroll.cli.chat:chat", "Talk with a language model that remembers."),
    "remember": ("backscroll.cli.facts:remember", "Store a fact about a user, or a character."),
    "facts": ("backscroll.cli.facts:facts", "List the facts about a user."),
    "forget": ("backscroll.cli.facts:forget", "Delete facts, with their bytes."),
    "threads": ("backscroll.cli.reading:threads", "List the threads."),
    "show": ("backscroll.cli.reading:show", "Show the lines of a thread."),
    "export": ("backscroll.cli.writing:export", "Write lines as JSONL that can be imported again."),
    "delete": ("backscroll.cli.deleting:delete", "Delete a user, a thread or a line, with their bytes."),
    "check": ("backscroll.cli.upkeep:check", "Compare what is derived with the lines, and repair it."),
    "summarize": ("backscroll.cli.upkeep:summarize", "Let a language model write the summaries that are missing."),
    "reembed": ("backscroll.cli.upkeep:reembed", "Make all vectors anew, by another embedder."),
    "serve": ("backscroll.cli.serve:serve", "Serve a memory: a proxy for chat clients, REST, the web page."),
    "keys": ("backscroll.cli.serve:keys", "Make, list and remove the keys that a server asks for."),
    "evaluate": ("backscroll.cli.evaluating:evaluate", "Measure recall, rewriting, or what a prefix cache serves."),
    "benchmark": ("backscroll.cli.benchmarking:benchmark", "Measure taking in and contexts in growing histories."),
    "setup-model": ("backscroll.cli.upkeep:setup_model", "Fetch the local embedder's model."),
}


class _Unloaded(click.Command):
    """What is known of a command before its module is imported."""

    def __init__(self, name: str, home: str, about: str) -> None:
        super().__init__(name, help=about)
        self._home = home

    def load(self) -> click.Command:
        """The command itself."""
        module, _, function = self._home.partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command


class _Group(click.Group):
    """Commands that are loaded when they run; what went wrong becomes one line and an exit code."""

    def __init__(self, commands: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(commands={name: _Unloaded(name, *found) for name, found in commands.items()}, **attributes)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of use."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command that is run."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Unloaded) else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; bugs keep their traceback."""
        try:
            return super().invoke(ctx)
        except BackscrollError as error:
            raise Failure(str(error)) from error
        except KeyboardInterrupt as error:
            raise Interrupted("nothing is lost") from error


@click.group(
    cls=_Group,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: backscroll import chat.jsonl --db chat.db",
)
@click.version_option(__version__, "-V", "--version", message="backscroll %(version)s")
def main() -> None:
    """Endless conversations for language models: every line kept, the best context within a budget of tokens."""
    for stream in (sys.stdout, sys.stderr):  # a terminal or pipe that cannot show a character is no reason to fail
        if hasattr(stream, "reconfigure") and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="backslashreplace")
