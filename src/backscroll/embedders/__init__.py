"""Embedders by name: what turns texts into unit vectors.

Importing this loads none of them: the module of an embedder is imported when one is opened.
"""

import importlib
from collections.abc import Callable

from backscroll.errors import NotFoundError
from backscroll.protocols import Embedder

OPENERS = {  # what opens the embedder, as module:function; it is handed what follows the colon of a name
    "local": "backscroll.embedders.local:open_local",
    "hashing": "backscroll.embedders.hashing:open_hashing",
    "remote": "backscroll.embedders.remote:open_remote",
    "sentence-transformers": "backscroll.embedders.sentence_transformers:open_sentence_transformers",
}
IDENTITIES = {  # the names that stores keep, where they are not what opens the embedder
    "all-MiniLM-L6-v2/int8": "local",
    **{f"hashing-{dimension}": f"hashing:{dimension}" for dimension in (64, 128, 256, 384, 512, 768, 1024)},
}


def open_embedder(name: str = "local") -> Embedder:
    """Open the embedder of that name.

    Args:
        name: ``local`` or ``local:FOLDER`` (all-MiniLM-L6-v2 on this machine), ``hashing`` or
            ``hashing:DIMENSION`` (no model), ``remote:MODEL@BASE_URL`` (an OpenAI-compatible endpoint),
            ``sentence-transformers:MODEL``, or the `name` of any of these embedders, as a store keeps it.

    Raises:
        NotFoundError: no embedder has this name.
        EmbedderError: what follows the colon is missing or wrong, or a package is missing.
        ModelNotFoundError: the model is not on this machine.

    >>> open_embedder("hashing").dimension
    256
    """
    kind, _, argument = IDENTITIES.get(name, name).partition(":")
    if kind not in OPENERS:
        known = "local, local:FOLDER, hashing, remote:MODEL@BASE_URL, sentence-transformers:MODEL"
        raise NotFoundError(f"no embedder is called {name!r}: there are {known}")
    module, _, function = OPENERS[kind].partition(":")
    opener: Callable[[str], Embedder] = getattr(importlib.import_module(module), function)
    return opener(argument)
