"""What a language model is told to do: versioned files beside this module, and the user's own in their place.

A file's text is what stands in the system message; `{name}` in it is filled in. What the model works on is never part
of it: that is sent as a message of its own, as data. A shipped file that was released is never edited: the next one
gets the next number, so that a version always names the same words.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from backscroll.errors import MessageError, NotFoundError

SHIPPED: Mapping[str, str] = MappingProxyType(  # what for -> name of the file
    {"summary": "summary-1", "rewrite": "rewrite-1", "multi": "multi-1", "hyde": "hyde-1"}
)
GivenPrompts = Mapping[str, str | os.PathLike[str]]  # what for -> path of a file


@dataclass(frozen=True, slots=True)
class Prompt:
    """Instructions for a language model.

    Attributes:
        text: with ``{name}`` where something is filled in.
        version: the shipped file's name, or a user's file's with a mark of what is in it.
    """

    text: str
    version: str

    def filled(self, **values: object) -> str:
        """The text with each ``{name}`` that is given replaced; other braces stay.

        >>> Prompt("In {words} words: {...}", "mine").filled(words=20)
        'In 20 words: {...}'
        """
        text = self.text
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text


def load_prompt(name: str) -> Prompt:
    """A shipped prompt by the name of its file.

    >>> load_prompt("summary-1").version
    'summary-1'
    """
    return Prompt(files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8").strip(), name)


def open_prompts(given: GivenPrompts | None = None) -> dict[str, Prompt]:
    """All prompts by what they are for: the shipped ones, and a user's files in place of some.

    Raises: NotFoundError for something that no prompt is for; MessageError for a file that cannot be read or is empty.

    >>> sorted(open_prompts())
    ['hyde', 'multi', 'rewrite', 'summary']
    """
    unknown = sorted(set(given or ()) - set(SHIPPED))
    if unknown:
        raise NotFoundError(f"no prompt is for {unknown[0]!r}: there are prompts for {', '.join(SHIPPED)}")
    own = {purpose: _read(Path(path)) for purpose, path in (given or {}).items()}
    return {purpose: own.get(purpose) or load_prompt(name) for purpose, name in SHIPPED.items()}


def _read(path: Path) -> Prompt:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise MessageError(f"the prompt in {path} cannot be read: {error}") from error
    if not text:
        raise MessageError(f"the prompt in {path} is empty: write into it what the model shall do")
    return Prompt(text, f"{path.stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}")
