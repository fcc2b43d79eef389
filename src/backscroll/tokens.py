"""Tokens of a text, of a message, of tools' schemas: what is counted, and what is estimated.

Exact for the texts of OpenAI's models and of any model whose ``tokenizer.json`` is at hand. What a provider adds
around the texts is not published; it is estimated here, and stated:

    a message                  3 tokens, a name 1 more; the reply is opened by 3
    a call                     its id, name and arguments, and 8
    a tool's schema            its JSON, and 8
    an image                   85 at low detail, else 1,445 (the most that a picture of 2048 x 2048 costs on GPT-4o)
    audio                      one token per 1,600 encoded bytes, at least 100
    a file                     one token per 4 bytes of its data, at least 1,500
    any other part             its JSON

Knows nothing about budgets, threads or stores.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from backscroll.errors import NotFoundError
from backscroll.protocols import TokenCounter

TOKENS_PER_CALL = 8
TOKENS_PER_TOOL = 8
IMAGE_TOKENS_LOW, IMAGE_TOKENS = 85, 1445
AUDIO_BYTES_PER_TOKEN, AUDIO_TOKENS_MIN = 1600, 100
FILE_BYTES_PER_TOKEN, FILE_TOKENS_MIN = 4, 1500
DEFAULT_VOCABULARY = "o200k_base"
_VOCABULARIES = ("o200k_base", "cl100k_base")
_MODELS = (  # the first start of a model's name that fits; tiktoken maps them the same way
    ("gpt-4o", "o200k_base"),
    ("gpt-4.", "o200k_base"),
    ("gpt-5", "o200k_base"),
    ("gpt-oss", "o200k_base"),
    ("chatgpt-4o", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-3.5", "cl100k_base"),
    ("gpt-35", "cl100k_base"),
)
_CACHED_TEXTS = 4096  # a window's messages are counted again at every turn


class VocabularyCounter:
    """Counts by one of OpenAI's vocabularies, exactly and offline.

    Source: the vocabularies in the package bpe-openai; equal to tiktoken's counts.
    """

    tokens_per_message = 3
    tokens_per_name = 1
    tokens_per_reply = 3

    def __init__(self, vocabulary: str) -> None:
        self.name = vocabulary
        encode = import_module("bpe_openai").get_encoding(vocabulary).encode_ordinary
        self._count = lru_cache(maxsize=_CACHED_TEXTS)(lambda text: len(encode(text)))

    def count(self, text: str) -> int:
        """Number of tokens; a special token's name in the text is counted as the ordinary text that it is."""
        return self._count(text) if text else 0


class TokenizerFileCounter:
    """Counts by a Hugging Face ``tokenizer.json``, exactly and offline."""

    tokens_per_message = 5  # the markers of chat templates: ChatML has 5, Llama 3's headers 5
    tokens_per_name = 1
    tokens_per_reply = 4

    def __init__(self, path: str) -> None:
        if not Path(path).is_file():
            raise NotFoundError(f"no tokenizer file at {path}: give the path of a tokenizer.json")
        tokenizer = import_module("tokenizers").Tokenizer.from_file(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.name = path
        self._count = lru_cache(maxsize=_CACHED_TEXTS)(
            lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
        )

    def count(self, text: str) -> int:
        """Number of tokens, special ones that a template would add left out."""
        return self._count(text) if text else 0


class OverestimateCounter:
    """Counts for a model whose vocabulary is not known, so that the true number is lower.

    A third more than o200k_base gives, and two tokens more for every three characters outside ASCII:
    small and old vocabularies need up to a token per byte there.
    """

    tokens_per_message = 6
    tokens_per_name = 2
    tokens_per_reply = 6

    def __init__(self, model: str) -> None:
        self.name = f"overestimate for {model}"
        self._vocabulary = VocabularyCounter(DEFAULT_VOCABULARY)

    def count(self, text: str) -> int:
        """An upper estimate of the number of tokens."""
        outside_ascii = 0 if text.isascii() else sum(c > "\x7f" for c in text)
        return math.ceil(self._vocabulary.count(text) * 4 / 3 + outside_ascii * 2 / 3)


@lru_cache(maxsize=32)
def open_counter(model: str | None = None) -> TokenCounter:
    """The counter for a model.

    Args:
        model: an OpenAI model's name, ``o200k_base`` or ``cl100k_base``, the path of a ``tokenizer.json``,
            or any other name, which is then overestimated. None counts as o200k_base.

    Raises: NotFoundError when a ``.json`` path does not exist.

        >>> open_counter("gpt-4o").name, open_counter("gpt-4").name, open_counter("my-model").name
        ('o200k_base', 'cl100k_base', 'overestimate for my-model')
    """
    if model is None or model in _VOCABULARIES:
        return VocabularyCounter(model or DEFAULT_VOCABULARY)
    if model.endswith(".json"):
        return TokenizerFileCounter(model)
    bare = model.removeprefix("openai/")
    vocabulary = next((vocabulary for start, vocabulary in _MODELS if bare.startswith(start)), None)
    return VocabularyCounter(vocabulary) if vocabulary else OverestimateCounter(model)


def message_tokens(payload: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens of one message as a provider counts it, without the opening of the reply.

    >>> message_tokens({"role": "user", "content": "Hello there!"}, open_counter())
    6
    """
    total = counter.tokens_per_message + _content_tokens(payload.get("content"), counter)
    if payload.get("name"):
        total += counter.tokens_per_name + counter.count(str(payload["name"]))
    for key in ("refusal", "tool_call_id"):
        if payload.get(key):
            total += counter.count(str(payload[key]))
    for call in payload.get("tool_calls") or ():
        total += TOKENS_PER_CALL + counter.count(_json(call))
    return total


def tools_tokens(tools: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Tokens of tools' schemas: their JSON, and 8 each."""
    return sum(TOKENS_PER_TOOL + counter.count(_json(tool)) for tool in tools)


def _content_tokens(content: object, counter: TokenCounter) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return counter.count(content)
    if not isinstance(content, list):
        return counter.count(str(content))
    return sum(_part_tokens(part, counter) for part in content)


def _part_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    estimate = _PARTS.get(str(part.get("type")))
    return estimate(part, counter) if estimate else counter.count(_json(part))


def _text_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return counter.count(str(part.get("text") or part.get("refusal") or "")) + 1  # the line end where texts are joined


def _image_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    image = part.get("image_url")
    low = isinstance(image, Mapping) and image.get("detail") == "low"
    return IMAGE_TOKENS_LOW if low else IMAGE_TOKENS


def _audio_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return max(AUDIO_TOKENS_MIN, _data_bytes(part.get("input_audio"), "data") // AUDIO_BYTES_PER_TOKEN)


def _file_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return max(FILE_TOKENS_MIN, _data_bytes(part.get("file"), "file_data") // FILE_BYTES_PER_TOKEN)


def _data_bytes(holder: object, key: str) -> int:
    data = holder.get(key) if isinstance(holder, Mapping) else None
    return len(data) * 3 // 4 if isinstance(data, str) else 0  # base64 holds 3 bytes in 4 characters


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_PARTS: dict[str, Callable[[Mapping[str, Any], TokenCounter], int]] = {
    "text": _text_tokens,
    "refusal": _text_tokens,
    "image_url": _image_tokens,
    "input_audio": _audio_tokens,
    "file": _file_tokens,
}
