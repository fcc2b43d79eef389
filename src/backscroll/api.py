"""The functions that a user begins with: open a memory, or prune a list of messages without one."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from backscroll.asynchronous import AsyncMemory
from backscroll.context import Context
from backscroll.llm import GivenLLM
from backscroll.memory import Memory
from backscroll.messages import parse_messages
from backscroll.prompts import GivenPrompts
from backscroll.protocols import Embedder
from backscroll.settings import Settings
from backscroll.types import Message
from backscroll.wiring import open_for_reembedding, open_memory


def open(
    url: str | os.PathLike[str],
    *,
    embedder: str | Embedder | None = None,
    preset: str | Settings = "backscroll",
    on_embedder_error: Literal["raise", "words"] = "raise",
    llm: GivenLLM | Mapping[str, GivenLLM] | None = None,
    prompts: GivenPrompts | None = None,
    query_language: str | None = None,
) -> Memory:
    """Open a memory, and make it where there is none.

    Args:
        url: path of a file, or ``:memory:`` for one that ends with the process.
        embedder: a name (``local``, ``hashing``, ``remote:MODEL@URL``, ``sentence-transformers:MODEL``) or an
            embedder; None takes the one that made the stored vectors, ``local`` for a new file.
        preset: name of a preset, or settings, for the contexts that name none.
        on_embedder_error: ``raise``, or go on by ``words`` alone and say so in the report.
        llm: who answers where `Thread.reply` is called, and writes the summaries in the background: ``openai:MODEL``,
            ``openai:MODEL@BASE_URL``, or an LLM; a function of messages, which writes no summaries; a dict of those
            for ``reply``, ``summary``, and ``query``, which is asked where the contextualizer is one by a language
            model; None for a memory that only remembers.
        prompts: files of your own in place of the shipped ones, by what they are for: ``summary``, ``rewrite``,
            ``multi``, ``hyde``.
        query_language: what the language model writes queries in, as ``German``; None takes the message's own.

    Raises: StoreError when the file cannot be used; EmbedderMismatchError when its vectors are another embedder's;
        ModelNotFoundError when the embedder's model is not on this machine; NotFoundError for an unknown name;
        LLMError when the language model's package or key is missing.
    """
    return open_memory(
        url,
        embedder=embedder,
        preset=preset,
        on_embedder_error=on_embedder_error,
        llm=llm,
        prompts=prompts,
        query_language=query_language,
    )


def open_async(
    url: str | os.PathLike[str],
    *,
    embedder: str | Embedder | None = None,
    preset: str | Settings = "backscroll",
    on_embedder_error: Literal["raise", "words"] = "raise",
    llm: GivenLLM | Mapping[str, GivenLLM] | None = None,
    prompts: GivenPrompts | None = None,
    query_language: str | None = None,
) -> AsyncMemory:
    """As `open`, with a face whose methods are awaited; the work is done in threads."""
    return AsyncMemory(
        open(
            url,
            embedder=embedder,
            preset=preset,
            on_embedder_error=on_embedder_error,
            llm=llm,
            prompts=prompts,
            query_language=query_language,
        )
    )


def reembed(
    url: str | os.PathLike[str], embedder: str | Embedder, progress: Callable[[int], None] | None = None
) -> int:
    """Make all vectors of a store anew by another embedder: the one way to change it.

    Args:
        url: as in `open`.
        embedder: as in `open`; opening takes it from now on.
        progress: told the number of lines after each batch.

    Returns: how many lines were embedded. Where it was interrupted, `Memory.embed` goes on.
    Raises: StoreError; EmbedderError; then the old vectors stay where the embedder could not run at all.
    """
    with open_for_reembedding(url, embedder) as memory:
        return memory.reembed(progress)


def prune(
    messages: Sequence[Mapping[str, Any] | Message],
    prompt: str | Mapping[str, Any] | Message | None = None,
    *,
    max_tokens: int,
    model: str | None = None,
    preset: str | Settings = "pruning",
    embedder: str | Embedder = "local",
) -> Context:
    """The context for a prompt over a list of messages that the caller keeps; nothing is stored.

    Args:
        messages: the whole history, oldest first; a system prompt first where there is one. Every one counts, also
            where two have one id: their ids are left out.
        prompt: the new message; None asks for the messages as they end.
        max_tokens: the size of everything in the result.
        model: whose tokens are counted; None counts as o200k_base.
        preset: name of a preset, or settings; a list of messages is one thread.
        embedder: as in `open`.

    Returns: the context; iterating over it gives its messages.
    Raises: BudgetError, EmbedderError, MessageError.

        >>> history = [{"role": "user", "content": f"Message {i}."} for i in range(8)]
        >>> [message["content"] for message in prune(history, "And now?", max_tokens=60, embedder="hashing")][-1]
        'And now?'
    """
    with open_memory(":memory:", embedder=embedder, preset=preset) as memory:
        thread = memory.thread("pruned")
        thread.append([message._replace(id=None) for message in parse_messages(messages)])
        return thread.context(prompt, max_tokens=max_tokens, model=model, scope="thread")
