"""What goes over the wire at /api: the bodies of requests and responses, as the OpenAPI description has them."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from backscroll.reply import CONTEXT_TOKENS, LATENCY, PARTIAL, PRESET

MAX_TOKENS = 2**31 - 1
NOTED = frozenset({PARTIAL, CONTEXT_TOKENS, LATENCY, PRESET, "replaces_system", "model", "finish_reason", "usage"})
Name = Annotated[str, Field(min_length=1, max_length=500)]
Position = Annotated[int, Field(ge=0, le=2**53 - 1)]
Budget = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Item = TypeVar("Item")


def _later(given: object, check: ValidatorFunctionWrapHandler) -> object:
    """A list whose items are checked when it is used."""
    return given if isinstance(given, list) and given else check(given)


class Shape(BaseModel):
    """What goes over the wire; where it does not fit, its error says where and never what: errors are logged."""

    model_config = ConfigDict(hide_input_in_errors=True)


class Problem(Shape):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class Page(Shape, Generic[Item]):
    """Some items of a list; `next` is the cursor of those that follow."""

    items: list[Item]
    next: str | None = None


class Preset(Shape):
    """A preset and its settings."""

    name: str
    settings: dict[str, Any]


class Status(Shape):
    """What this server is."""

    version: str
    needs_key: bool
    has_model: bool = False
    model: str | None = None
    embedder: str | None = None
    store: str | None = None
    presets: list[Preset] = []
    default_preset: str | None = None
    max_tokens: int | None = None


class UserShape(Shape):
    """A user."""

    user: str
    threads: int
    lines: int
    updated_at: datetime | None


class ThreadShape(Shape):
    """A thread, or a branch of one."""

    user: str
    thread: str
    title: str
    lines: int
    tokens: int
    created_at: datetime | None
    updated_at: datetime | None
    parent: str | None
    fork_position: int | None
    head: str | None
    family: str


class MessageGiven(Shape):
    """An OpenAI-style message; other keys are kept and sent."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    id: str | None = None

    def plain(self) -> dict[str, Any]:
        """The message as it was given, less what in its metadata only we say."""
        plain = self.model_dump(exclude_unset=True)
        if isinstance(noted := plain.get("metadata"), dict):
            plain["metadata"] = {key: value for key, value in noted.items() if key not in NOTED}
        return plain


class MessagesGiven(Shape):
    """Messages to store."""

    messages: Annotated[list[MessageGiven], Field(min_length=1), WrapValidator(_later)]  # each is checked by `plain`


def plain(given: MessagesGiven) -> list[dict[str, Any]]:
    """The messages as they were given, checked one by one. Blocks. Raises: RequestValidationError."""
    found = []
    for place, message in enumerate(given.messages):
        try:
            found.append(MessageGiven.model_validate(message).plain())
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError(
                [{**one, "loc": ("body", "messages", place, *one["loc"])} for one in told]
            ) from error
    return found


class BranchGiven(Shape):
    """What stands at the place where a thread branches; nothing asks for another reply there."""

    message: MessageGiven | None = None


class SourceShape(Shape):
    """Where a stored line stands."""

    user: str
    thread: str
    position: int
    id: str


class Stored(Shape):
    """Where messages were stored."""

    sources: list[SourceShape]


class Deleted(Shape):
    """How many lines were deleted."""

    deleted: int


class LineShape(Shape):
    """A stored line."""

    position: int
    id: str
    role: str
    name: str | None
    text: str
    content: Any = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    created_at: datetime
    tokens: int
    pinned: bool
    partial: bool


class Lines(Page[LineShape]):
    """Lines of a thread, in order; where its path begins and ends."""

    first: int | None
    last: int | None
    total: int


class ContextAsked(Shape):
    """A context that is asked for."""

    prompt: str | MessageGiven | None = None
    max_tokens: Budget | None = None
    preset: str | None = None
    model: str | None = None
    tools: list[dict[str, Any]] = []
    now: datetime | None = None
    scope: Literal["thread", "user", "all"] = "user"


class ContextShape(Shape):
    """A context, and why it is as it is."""

    messages: list[dict[str, Any]]
    tokens: int
    max_tokens: int
    sources: list[SourceShape]
    report: dict[str, Any]


class ReplyAsked(Shape):
    """A reply that is asked for."""

    prompt: str | MessageGiven | None = None
    max_tokens: Budget | None = None
    stream: bool = False
    tools: list[dict[str, Any]] = []
    now: datetime | None = None
    scope: Literal["thread", "user", "all"] = "user"


class TurnShape(Shape):
    """A prompt and its reply, stored."""

    message: dict[str, Any]
    finish_reason: str
    model: str | None
    partial: bool
    usage: dict[str, Any] | None
    sources: list[SourceShape]
    context: ContextShape | None


class HitShape(Shape):
    """A line that was searched for."""

    user: str
    thread: str
    position: int
    id: str
    role: str
    name: str | None
    text: str
    created_at: datetime
    score: float
    similarity: float


class SummaryShape(Shape):
    """What a run of lines said, in fewer words."""

    first: int
    last: int
    text: str
    method: str
    created_at: datetime


class SentShape(Shape):
    """What one reply was sent, beside the whole history at that place."""

    position: int
    at: datetime
    tokens_sent: int | None
    tokens_full: int
    latency_ms: int | None
    preset: str | None
    model: str | None
