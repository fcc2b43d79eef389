"""Tools that a model may call: their schemas, and their results where the calls are answered here.

Functions are run one after the other, in the caller's thread, in the order of the calls. Knows nothing about threads
of a chat, stores or budgets.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from traceback import format_exception_only
from types import TracebackType
from typing import Any, get_type_hints

from backscroll.errors import LLMError, MessageError

MAX_ROUNDS = 8
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Attributes:
        function: called with the arguments that the model gives, by name; what it returns is the result, as it is
            where it is text, else as JSON. What it raises is told to the model as the result.
        description: what it is for; empty takes the first line of the function's docstring.
        parameters: JSON schema of the arguments; None is made of the function's signature.
    """

    function: Callable[..., object]
    description: str = ""
    parameters: Mapping[str, Any] | None = None

    def schema(self, name: str) -> dict[str, Any]:
        """The tool as a provider is told of it.

        >>> def double(number: int) -> int:
        ...     "Twice a number."
        >>> Tool(double).schema("double")["function"]["parameters"]
        {'type': 'object', 'properties': {'number': {'type': 'integer'}}, 'required': ['number']}

        Raises: MessageError where the signature cannot be read.
        """
        told = self.description or (inspect.getdoc(_written(self.function)) or "").partition("\n")[0]
        try:
            parameters = _parameters(self.function) if self.parameters is None else dict(self.parameters)
        except (NameError, TypeError, ValueError, AttributeError, SyntaxError) as error:
            raise MessageError(
                f"tool {name!r}: its signature cannot be read ({error}): give Tool(function, description, parameters)"
            ) from error
        return {"type": "function", "function": {"name": name, "description": told, "parameters": parameters}}


@dataclass(frozen=True, slots=True)
class Tools:
    """What a model may call.

    Attributes:
        functions: tool name -> what answers the call; empty where the caller answers.
        schemas: of the tools that the caller answers.
        max_rounds: how often in one turn calls are answered before it is given up.
    """

    functions: Mapping[str, Callable[..., object] | Tool] = field(default_factory=dict)
    schemas: Sequence[Mapping[str, Any]] = ()
    max_rounds: int = MAX_ROUNDS

    def told(self) -> list[Mapping[str, Any]]:
        """The schemas of all of them."""
        return [*self.schemas, *(_tool(one).schema(name) for name, one in self.functions.items())]

    def answer(self, message: Mapping[str, Any], rounds: int) -> list[dict[str, Any]]:
        """The results of a message's calls, in their order; none where the caller answers them.

        Args:
            rounds: how many times calls were answered before in this turn.

        Raises: LLMError, and calls nothing, where that was often enough.
        """
        calls = message.get("tool_calls") or () if self.functions else ()
        if calls and rounds >= self.max_rounds:
            raise LLMError(f"the model still calls tools after {rounds} rounds of results: ask it again, or allow more")
        return [{"role": "tool", "tool_call_id": call["id"], "content": self._result(call)} for call in calls]

    def _result(self, call: Mapping[str, Any]) -> str:
        called = call.get("function") or {}
        name = str(called.get("name") or "")
        if name not in self.functions:
            return f"error: there is no tool {name!r}, only {', '.join(self.functions)}"
        try:
            arguments = json.loads(called.get("arguments") or "{}")
        except (ValueError, TypeError, RecursionError) as error:
            return f"error: the arguments are not JSON: {error}"
        if not isinstance(arguments, dict):
            return "error: the arguments are not a JSON object"
        with _Outcome() as outcome:
            outcome.text = _text(_tool(self.functions[name]).function(**arguments))
        return outcome.text


GivenTools = Tools | Mapping[str, Callable[..., object] | Tool] | Sequence[Mapping[str, Any]] | None


def parse_tools(given: GivenTools) -> Tools:
    """Tools from what a caller gives: functions by name, which are run here, or schemas, whose calls are the caller's.

    Raises: MessageError where it is neither, or a function must be awaited, or its signature cannot be read.
    """
    if isinstance(given, Tools):
        tools = given
    elif isinstance(given, Mapping):
        tools = Tools(functions=given)
    else:
        tools = Tools(schemas=tuple(given or ()))
    for name, one in tools.functions.items():
        function = one.function if isinstance(one, Tool) else one
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise MessageError(f"tool {name!r} is not a function that returns its result when it is called")
    if not all(isinstance(schema, Mapping) for schema in tools.schemas):
        raise MessageError("tools are functions by name, or a list of schemas")
    tools.told()
    return tools


class _Outcome(AbstractContextManager["_Outcome"]):
    """What a tool gave: its result, or the text of its error.

    A tool is not our code, and whatever it raises is a result that the model must see, else the call would stay
    without one. What ends the program goes through.
    """

    text = ""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.text = f"error: {''.join(format_exception_only(error)).strip()}"  # also where it cannot tell its text
        return True


def _tool(given: Callable[..., object] | Tool) -> Tool:
    return given if isinstance(given, Tool) else Tool(given)


def _text(result: object) -> str:
    """The result as text that can be stored: halves of surrogate pairs are none."""
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def _written(function: Callable[..., object]) -> Callable[..., object]:
    """The function that has the docstring and the annotations: of a partial one, or of an object that is called."""
    if isinstance(function, partial):
        return _written(function.func)
    is_object = not (inspect.isroutine(function) or inspect.isclass(function))
    return type(function).__call__ if is_object else function


def _parameters(function: Callable[..., object]) -> dict[str, Any]:
    """The JSON schema of a function's parameters, by its annotations; one that is not known may be anything."""
    hints = get_type_hints(_written(function))
    bound = function.keywords if isinstance(function, partial) else {}
    named = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and one.name not in bound
    ]
    known = {one.name: _TYPES.get(hints.get(one.name, object)) for one in named}
    return {
        "type": "object",
        "properties": {name: {"type": kind} if kind else {} for name, kind in known.items()},
        "required": [one.name for one in named if one.default is inspect.Parameter.empty],
    }
