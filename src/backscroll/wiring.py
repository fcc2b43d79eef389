"""The only module that knows which store, which embedder, which calibration, which LLM: it puts a Memory together."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from backscroll.contextualize import CONTEXTUALIZERS, Said, combine, contextualize
from backscroll.contextualize import Rewriter as Rewriter
from backscroll.embedders import model_files, open_embedder
from backscroll.embedders.calibration import calibrate
from backscroll.embedders.recent import RecentEmbedder
from backscroll.errors import BackscrollError, EmbedderMismatchError, NotFoundError
from backscroll.llm import GivenLLM, open_llm
from backscroll.llm.deltas import Deltas, whole
from backscroll.llm.wordings import limit_in, says_too_long
from backscroll.memory import Memory
from backscroll.prompts import GivenPrompts, open_prompts
from backscroll.protocols import LLM, Embedder, MemoryStore
from backscroll.rolling import Rolling
from backscroll.settings import BY_MODEL, Settings, open_preset
from backscroll.stores import open_store
from backscroll.tokens import DEFAULT_VOCABULARY, message_tokens, open_counter
from backscroll.types import Message, Reply, Vector
from backscroll.vectors import embedded

DEFAULT_EMBEDDER = "local"
LLM_PURPOSES = ("reply", "query", "summary")


def open_memory(
    url: str | os.PathLike[str],
    *,
    embedder: str | Embedder | None = None,
    preset: str | Settings = "backscroll",
    on_embedder_error: Literal["raise", "words"] = "raise",
    llm: GivenLLM | Mapping[str, GivenLLM] | None = None,
    prompts: GivenPrompts | None = None,
    query_language: str | None = None,
) -> Memory:
    """Open a memory: see `backscroll.open`."""
    settings = preset if isinstance(preset, Settings) else open_preset(preset)
    llms = _llms(llm)
    told = open_prompts(prompts)
    url = os.fspath(url)
    if not Path(url).exists() and (embedder is None or isinstance(embedder, str)):
        shared_embedder(embedder or DEFAULT_EMBEDDER)  # what is missing must be said before a file is made
    store = open_lines(url)
    try:
        chosen = _embedder(store, url, embedder)
    except BackscrollError:
        store.close()
        raise
    rolling = Rolling(store, llms.get("summary"), told["summary"])
    asked = chosen if chosen is embedder else RecentEmbedder(chosen)  # one that is given is asked for every text
    memory = Memory(store, asked, calibrate, settings, on_embedder_error, llms.get("reply"), rolling)
    memory.rewriter = Rewriter(llms["query"], told, query_language) if "query" in llms else None
    return memory


def open_for_reembedding(url: str | os.PathLike[str], embedder: str | Embedder) -> Memory:
    """Open a memory by another embedder than the one of its vectors, for nothing else than `Memory.reembed`."""
    chosen = shared_embedder(embedder) if isinstance(embedder, str) else embedder
    return Memory(open_lines(url), chosen, calibrate)


def open_lines(url: str | os.PathLike[str]) -> MemoryStore:
    """Open a store alone, for what needs no embedder."""
    return open_store(os.fspath(url), count_message)


def reply_of(answer: Mapping[str, Any]) -> Reply:
    """The first choice of a chat completion, as a reply to store."""
    return whole({**answer, "choices": _first_choice(answer)})


def reply_of_chunks(chunks: Iterable[Mapping[str, Any]]) -> Reply:
    """The first choice of a streamed chat completion; partial where its end did not come."""
    deltas = Deltas()
    for chunk in chunks:
        deltas.add({**chunk, "choices": _first_choice(chunk)})
    return replace(deltas.reply(), is_partial=deltas.finish_reason is None)


def taken_tokens(refusal: str) -> int | None:
    """The most tokens that a model takes, where its refusal says that there were too many; 0 where it does not say."""
    return (limit_in(refusal) or 0) if says_too_long(refusal) else None


def contextualizer_names() -> tuple[str, ...]:
    """The ways there are to make a query that stands alone: without a language model, then by one."""
    return (*CONTEXTUALIZERS, *BY_MODEL)


def open_rewriter(llm: GivenLLM, prompts: GivenPrompts | None = None, language: str | None = None) -> Rewriter:
    """Who asks a language model for queries. Raises: NotFoundError, MessageError, LLMError."""
    return Rewriter(open_llm(llm), open_prompts(prompts), language)


def stand_alone(
    name: str,
    message: str,
    recent: Sequence[tuple[str, str]],
    embedder: Embedder,
    rewriter: Rewriter | None = None,
) -> tuple[str, Vector | None]:
    """The text and the vector of a query made of a message and the lines before it.

    Args:
        recent: (role, text) of each, oldest first.
        rewriter: who is asked by those that need a language model; what it raises is raised.

    Returns: the message and None where it stands alone. Raises: NotFoundError; EmbedderError; LLMError.
    """
    said = [Said(role, text) for role, text in recent]
    made = (
        rewriter.queries(name, message, said) if name in BY_MODEL and rewriter else contextualize(message, said, name)
    )
    if not made.is_changed:
        return message, None
    return made.text, combine(embedded(embedder, [part.text for part in made.parts]), made)


def count_message(message: Message) -> int:
    """Tokens of a message as they are stored with its line."""
    return message_tokens(message.payload, open_counter(DEFAULT_VOCABULARY))


@cache
def shared_embedder(name: str) -> Embedder:
    """One embedder of a name for all memories of the process: a model is loaded once."""
    return open_embedder(name)


def open_yardstick(name: str) -> Embedder:
    """An embedder to compare with; `sentence-transformers` alone is the local embedder's own weights run by PyTorch."""
    return shared_embedder(f"{name}:{model_files.find_whole_model()}" if name == "sentence-transformers" else name)


def setup_model(folder: str | None = None, progress: Callable[[int, int], None] | None = None) -> Path:
    """Fetch the local embedder's model: see `backscroll.embedders.setup_model`, which brings an HTTP client."""
    fetched: Path = import_module("backscroll.embedders.setup_model").setup_model(folder, progress)
    return fetched


def cache_folder() -> Path:
    """Where on this machine that is kept which can be made again."""
    return model_files.cache_folder().parent


def _llms(given: GivenLLM | Mapping[str, GivenLLM] | None) -> dict[str, LLM]:
    """Who is asked for what: one LLM for everything, in the background only where several threads may ask it."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        opened = open_llm(given)
        return dict.fromkeys(LLM_PURPOSES if getattr(opened, "is_concurrent", False) else LLM_PURPOSES[:2], opened)
    unknown = sorted(set(given) - set(LLM_PURPOSES))
    if unknown:
        raise NotFoundError(f"no language model is for {unknown[0]!r}: there are {', '.join(LLM_PURPOSES)}")
    return {purpose: open_llm(one) for purpose, one in given.items()}


def _first_choice(answer: Mapping[str, Any]) -> list[Any]:
    """The choice of index 0; a stream of several brings them in turns."""
    return [choice for choice in answer.get("choices") or () if not choice.get("index")]


def _embedder(store: MemoryStore, url: str, asked: str | Embedder | None) -> Embedder:
    """The embedder asked for, else the one that the store's vectors were made by, else the default one."""
    stored = store.setting("embedder")
    if asked is None:
        return shared_embedder(stored or DEFAULT_EMBEDDER)
    embedder = shared_embedder(asked) if isinstance(asked, str) else asked
    if stored is not None and stored != embedder.name:
        raise EmbedderMismatchError(stored, embedder.name, url)
    return embedder
