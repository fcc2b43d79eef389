"""What is typed with a slash in front: commands about the conversation, which are not part of it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from backscroll.cli.asking import print_hits
from backscroll.cli.context_page import print_context
from backscroll.cli.options import counted
from backscroll.cli.outcome import Failure
from backscroll.cli.reading import print_threads
from backscroll.cli.screen import one_line, table
from backscroll.cli.talk import Talk
from backscroll.types import Line

_HITS = 10
_SHOWN_CHARACTERS = 60
_NEWEST_TOKENS = 100_000  # where the last exchange is looked for


@dataclass(frozen=True, slots=True)
class Slash:
    """A command.

    Attributes:
        run: handed the conversation and what follows the command's name.
        takes: what may follow, for the help.
        about: what it does.
    """

    run: Callable[[Talk, str], None]
    takes: str
    about: str


class Quit(Exception):  # noqa: N818 - not an error
    """The conversation is over."""


def run_slash(talk: Talk, line: str) -> None:
    """Run a line that begins with a slash. Raises: Failure for an unknown one; what the command raises; Quit."""
    name, _, rest = line.partition(" ")
    if name not in SLASHES:
        known = ", ".join(SLASHES)
        raise Failure(f"there is no {name}; there are {known}; // in front sends a line that begins with a slash")
    SLASHES[name].run(talk, rest.strip())


def _context(talk: Talk, text: str) -> None:
    found = talk.would_send(text) if text else talk.context
    if found is None:
        raise Failure("nothing was sent yet; /context WORDS shows what would be sent for them")
    print_context(talk.console, found)


def _recall(talk: Talk, text: str) -> None:
    if not text:
        raise Failure("/recall WORDS: what to look for is missing")
    print_hits(talk.thread.recall(text, _HITS, talk.scope))


def _threads(talk: Talk, text: str) -> None:
    print_threads(talk.memory.threads(talk.thread.key.user))


def _thread(talk: Talk, text: str) -> None:
    if text:
        talk.thread, talk.context = talk.memory.thread(text, talk.thread.key.user, talk.thread.persona), None
    newest = talk.newest()
    talk.note(f"thread {talk.thread.key.thread}, {'at ' + _told(newest[-1]) if newest else 'new'}")


def _pin(talk: Talk, text: str) -> None:
    talk.note(f"in every context of this thread from now on: {_told(talk.thread.pin(_position(talk, text)))}")


def _unpin(talk: Talk, text: str) -> None:
    talk.note(f"no longer pinned: {_told(talk.thread.unpin(_position(talk, text)))}")


def _forget(talk: Talk, text: str) -> None:
    """The last exchange, a line, or all of the thread: gone with their bytes."""
    going = None if text == "all" else [_position(talk, text)] if text else _last_exchange(talk)
    talk.context = None  # it may have shown them
    talk.note(f"{counted(talk.thread.delete(going), 'line')} deleted")


def _retry(talk: Talk, text: str) -> None:
    talk.retry()


def _help(talk: Talk, text: str) -> None:
    rows = table("command", "what it does")
    for name, slash in SLASHES.items():
        rows.add_row(f"{name} {slash.takes}".rstrip(), slash.about)
    talk.console.print(rows)
    talk.note("Alt-Enter: a new line. Ctrl-C: stops a reply. Ctrl-D: leaves. // in front sends a line with a slash.")


def _quit(talk: Talk, text: str) -> None:
    raise Quit


def _position(talk: Talk, text: str) -> int:
    """The position that is named, else the user's newest line's. Raises: Failure."""
    if text.isdecimal():
        return int(text)
    if text:
        raise Failure(f"{text!r} is no position: a whole number, as /context and /recall show them behind the thread")
    return _last_exchange(talk)[0]


def _last_exchange(talk: Talk) -> list[int]:
    """Positions from the user's newest line on. Raises: Failure where there is none."""
    newest = talk.newest(_NEWEST_TOKENS)
    behind = list(takewhile(lambda line: line.message.role != "user", reversed(newest)))
    if len(behind) == len(newest):
        raise Failure("there is no line of yours in this thread yet")
    return [line.position for line in newest[len(newest) - len(behind) - 1 :]]


def _told(line: Line) -> str:
    return f"{line.position}, {one_line(line.speaker)}: {one_line(line.message.text, _SHOWN_CHARACTERS)}"


SLASHES = {
    "/context": Slash(_context, "[WORDS]", "what was sent last and why; with words, what would be sent for them"),
    "/recall": Slash(_recall, "WORDS", "the stored lines that match best, with their threads and positions"),
    "/pin": Slash(_pin, "[N]", "keep line N of this thread in every context; without N, your newest line"),
    "/unpin": Slash(_unpin, "[N]", "let go of it"),
    "/forget": Slash(_forget, "[N | all]", "delete the last exchange, line N, or this whole thread, with their bytes"),
    "/retry": Slash(_retry, "", "ask again for a reply that failed"),
    "/threads": Slash(_threads, "", "list your threads"),
    "/thread": Slash(_thread, "[NAME]", "go on in another thread, or a new one; without a name, say which this is"),
    "/help": Slash(_help, "", "this list"),
    "/quit": Slash(_quit, "", "leave"),
}
