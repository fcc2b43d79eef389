"""What the server is told: by options, by the environment (BACKSCROLL_…), by a TOML file; in this order.

Knows nothing about what is done with it.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from backscroll.endpoint import checked_address
from backscroll.errors import LLMError, MessageError

PREFIX = "BACKSCROLL_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
OPENAI = "https://api.openai.com/v1"
KEEP_ALIVE_SECONDS = 75  # a client that sends while its idle connection is being closed loses its request
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server runs; `docs/server.md` says more of each.

    Attributes:
        db: the store's file; each tenant but ``default`` has one of its own beside it.
        embedder: its name; empty takes the store's own.
        preset: of contexts where a request names none.
        host, port: where it listens. Without keys only this machine may ask.
        workers: processes; all of them on the one file.
        llm: who answers on the page and at ``/api/reply``: ``openai:MODEL``, ``openai:MODEL@BASE_URL``; empty has none.
        upstream: base URL of the OpenAI-compatible server behind the proxy; empty takes the one of `llm`.
        upstream_key_variable: the environment variable with the key for it.
        max_tokens: of a context: everything sent.
        limit_tokens: the model's whole window, reply included; 0 is not told.
        reply_tokens: kept free in limit_tokens where a request does not say how long its reply may be.
        channels: ways by which people write besides, by commas: ``sms``; docs/sms.md.
        keys: the file of the keys' hashes, made by ``backscroll key``; empty asks for no key.
        max_body_bytes: the longest request.
        requests_per_minute: of one key, or one address; 0 has no limit.
        max_requests: at once; more are told to come back.
        timeout_seconds: for the upstream's next byte.
        shutdown_seconds: for streams to finish when the server is stopped.
        threads: that do the memory's work.
        log_level, log_format: ``info`` and ``text``, or ``json``. Neither messages nor keys nor headers are logged.
    """

    db: str = "chat.db"
    embedder: str = ""
    preset: str = "backscroll"
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    llm: str = ""
    upstream: str = ""
    upstream_key_variable: str = "OPENAI_API_KEY"
    max_tokens: int = 8000
    limit_tokens: int = 0
    reply_tokens: int = 1000
    channels: str = ""
    keys: str = ""
    max_body_bytes: int = 20_000_000
    requests_per_minute: int = 600
    max_requests: int = 256
    timeout_seconds: float = 300.0
    shutdown_seconds: int = 30
    threads: int = 4
    log_level: str = "info"
    log_format: str = "text"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in ("port", "workers", "max_tokens", "max_body_bytes", "max_requests", "timeout_seconds", "threads"):
            if getattr(self, name) <= 0:
                raise MessageError(f"{name} is above 0, not {getattr(self, name)!r}")
        for name in ("limit_tokens", "reply_tokens", "requests_per_minute", "shutdown_seconds"):
            if getattr(self, name) < 0:
                raise MessageError(f"{name} is not below 0, as {getattr(self, name)!r} is")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise MessageError(f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}")
        if not self.keys and self.host not in LOOPBACK:
            raise MessageError(
                f"without keys the server listens on this machine alone, not on {self.host}: make a key by "
                "`backscroll key --keys keys.json`, and serve with --keys keys.json"
            )

    @property
    def channel_names(self) -> list[str]:
        """The channels, one by one."""
        return [name.strip() for name in self.channels.split(",") if name.strip()]

    def to_environment(self) -> dict[str, str]:
        """The settings as environment variables, for the worker processes."""
        return {PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
}
FIELDS: Mapping[str, type] = {field.name: type(field.default) for field in fields(ServerSettings)}


def read_settings(given: Mapping[str, Any], config: str | None = None) -> ServerSettings:
    """The settings that were given, over those of the environment, over those of the file.

    Args:
        given: values by name; None stands for what was not given.
        config: a TOML file; None takes the one that BACKSCROLL_CONFIG names, if any.

    Raises: MessageError for an unknown name or a value that does not fit.

        >>> read_settings({"port": 9000}).port
        9000
    """
    path = config or os.environ.get(CONFIG_VARIABLE)
    environment = {name: os.environ[PREFIX + name.upper()] for name in FIELDS if PREFIX + name.upper() in os.environ}
    told = {name: value for name, value in given.items() if value is not None}
    merged = {**(_read_file(path) if path else {}), **environment, **told}
    return ServerSettings(**{name: _typed(name, value) for name, value in merged.items()})


def base_url_of(settings: ServerSettings) -> str:
    """Where the upstream is; empty where there is none. Raises: LLMError for an address that is none."""
    named = settings.upstream
    if not named and settings.llm.startswith("openai:"):
        named = settings.llm.partition("@")[2] or os.environ.get("OPENAI_BASE_URL") or OPENAI
    return checked_address(named, LLMError, "put it into the variable of the key") if named else ""


def _read_file(path: str) -> dict[str, Any]:
    try:
        read = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MessageError(f"{path} cannot be read as TOML: {error}") from error
    unknown = sorted(set(read) - set(FIELDS))
    if unknown:
        raise MessageError(f"{path}: there is no setting {', '.join(unknown)}; there are {', '.join(FIELDS)}")
    return read


def _typed(name: str, value: Any) -> Any:
    """The value as its setting's type; text of the environment is read as numbers where numbers belong."""
    wanted = FIELDS[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is str and isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if wanted is not str and (is_number or isinstance(value, str)):
        try:
            return wanted(value)
        except (ValueError, OverflowError) as error:
            raise MessageError(f"{name} is a number, not {value!r}") from error
    raise MessageError(f"{name} is {'text' if wanted is str else 'a number'}, not {value!r}")
