"""Language models by name: what answers messages.

Importing this loads none of them: the module of an LLM is imported when one is opened.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

from backscroll.errors import NotFoundError
from backscroll.llm.callables import CallableLLM
from backscroll.protocols import LLM

OPENERS = {  # what opens the LLM, as module:function; it is handed what follows the colon of a name
    "openai": "backscroll.llm.openai_compatible:open_openai",
}
GivenLLM = str | LLM | Callable[..., str | Mapping[str, Any]]


def open_llm(given: GivenLLM) -> LLM:
    """Open an LLM.

    Args:
        given: ``openai:MODEL``, or ``openai:MODEL@BASE_URL`` for any server that speaks the same protocol; an LLM,
            which is taken as it is; or a function of messages, see `CallableLLM`.

    Raises:
        NotFoundError: nothing has this name.
        LLMError: a package or a key is missing.

    >>> open_llm(lambda messages: "Yes.").complete([{"role": "user", "content": "Ready?"}]).text
    'Yes.'
    """
    if not isinstance(given, str):
        return cast(LLM, given) if hasattr(given, "complete") else CallableLLM(given)
    kind, _, argument = given.partition(":")
    if kind not in OPENERS or not argument:
        raise NotFoundError(f"no language model is called {given!r}: there are openai:MODEL, openai:MODEL@BASE_URL")
    module, _, function = OPENERS[kind].partition(":")
    opened: LLM = getattr(import_module(module), function)(argument)
    return opened
