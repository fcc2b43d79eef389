"""Log lines: text for people, or one JSON object a line."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JSONFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_config(level: str, form: str) -> dict[str, Any]:
    """The configuration of `logging` for the server and its workers; to stderr.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``. What HTTP libraries say of single requests names
            addresses with their queries; it is told from warnings on.
        form: ``text`` or ``json``.
    """
    formatter: dict[str, Any] = {"()": JSONFormatter} if form == "json" else {"format": _TEXT}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {name: {"level": level.upper()} for name in ("backscroll", "uvicorn")},
    }
