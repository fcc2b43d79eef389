"""A conversation that is going on: what is said goes to the language model, and both sides are stored.

Without a language model what would be sent is shown in place of a reply. Knows nothing about how lines are typed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import click
from rich.console import Console
from rich.text import Text

from backscroll.cli.context_page import print_context
from backscroll.cli.interrupting import one_interrupt
from backscroll.cli.outcome import Failure
from backscroll.cli.screen import screen, shown
from backscroll.context import Context
from backscroll.errors import BackscrollError
from backscroll.memory import Memory, ScopeName, Thread
from backscroll.types import Line

NO_MODEL = "no language model is set (--llm): this is what one would be sent; your line is stored"


@dataclass(slots=True)
class Talk:
    """A conversation in a thread, which may be left for another one.

    Attributes:
        max_tokens: of what is sent.
        scope: where old lines are recalled from.
        system: the system prompt that a new thread begins with.
        context: what was sent last, or would have been; None before that.
    """

    memory: Memory
    thread: Thread
    max_tokens: int
    scope: ScopeName
    system: str | None = None
    context: Context | None = None
    console: Console = field(default_factory=screen)
    reached: int = -1  # position of the newest line before the turn

    def begin(self) -> None:
        """Give a thread without lines its system prompt."""
        if self.system and not self.newest():
            self.thread.append({"role": "system", "content": self.system})

    def say(self, text: str) -> None:
        """Send a line, print the reply as it comes, and store both.

        Raises: Failure; then the line is stored without a reply. KeyboardInterrupt; then what had come is stored too,
            as partial.
        """
        self.begin()
        if self.memory.llm is None:
            self.context = self.would_send(text)
            self.thread.append({"role": "user", "content": text})
            print_context(self.console, self.context)
            self.note(f"\n{NO_MODEL}")
            return
        self._reply(text)

    def retry(self) -> None:
        """Ask for a reply to the newest line. Raises: Failure where it has one, or nobody could give one."""
        if self.memory.llm is None:
            raise Failure("there is no language model to ask: start with --llm")
        if not self.is_unanswered():
            raise Failure("nothing is unanswered: /forget takes the last exchange away, then say it again")
        self._reply(None)

    def would_send(self, text: str) -> Context:
        """What would be sent for a text; nothing is stored."""
        model = self.memory.llm.model if self.memory.llm else None
        now = datetime.now().astimezone()
        return self.thread.context(text, max_tokens=self.max_tokens, model=model, now=now, scope=self.scope)

    def newest(self, tokens: int = 1) -> list[Line]:
        """The newest lines of so many tokens, oldest first."""
        return self.memory.store.tail(self.thread.key, tokens)

    def is_unanswered(self) -> bool:
        """Whether the newest line is the user's."""
        newest = self.newest()
        return bool(newest) and newest[-1].message.role == "user"

    def what_is_left(self) -> str:
        """What a turn that did not end left behind, in words."""
        newest = self.newest()
        if newest and newest[-1].message.role == "assistant" and newest[-1].position > self.reached:
            return "what came is stored"
        return "your line is stored, /retry asks again" if self.is_unanswered() else "nothing of it is stored"

    def note(self, text: str) -> None:
        """Say something that is not of the conversation."""
        self.console.print(Text(shown(text), "dim"))

    def _reply(self, text: str | None) -> None:
        """One turn, printed as it comes. Raises: Failure, which says what the turn left behind."""
        newest = self.newest()
        self.reached = newest[-1].position if newest else -1
        try:
            with one_interrupt():
                self._stream(text)
        except BackscrollError as error:
            raise Failure(f"{error} ({self.what_is_left()})") from error

    def _stream(self, text: str | None) -> None:
        now = datetime.now().astimezone()
        stream = self.thread.reply(
            text, max_tokens=self.max_tokens, stream=True, keep_prompt=True, now=now, scope=self.scope
        )
        try:
            with stream:
                self._print(stream)
        finally:
            self.context = stream.context or self.context

    def _print(self, stream: Iterator[str]) -> None:
        """Print the pieces as they come; the cursor ends at the start of a line, whatever happens."""
        has_begun = False
        try:
            for piece in self._awaited(stream):
                has_begun = True
                click.echo(shown(piece), nl=False)
        finally:
            if has_begun:
                click.echo()

    def _awaited(self, stream: Iterator[str]) -> Iterator[str]:
        """The pieces; while the first one is awaited, a terminal shows that something goes on."""
        waiting = self.console.status(Text("thinking", "dim")) if self.console.is_terminal else None
        if waiting is None:
            yield from stream
            return
        with waiting:
            first = next(stream, None)
        if first is not None:
            yield first
            yield from stream
