"""Fetch the files of all-MiniLM-L6-v2 into the folder where the local embedder looks for them.

The one part of Backscroll that fetches anything, and only when it is asked to. What arrives is taken only
if its SHA-256 is the expected one. Knows nothing about what is in the files.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import httpx

from backscroll.embedders.model_files import ENVIRONMENT, MODEL, TOKENIZER, WEIGHTS, cache_folder
from backscroll.errors import EmbedderError

URL = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main"
FILES = MappingProxyType(  # name -> SHA-256; the small one first, so that a wrong address is noticed at once
    {
        TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    }
)
ATTEMPTS = 3  # for each file; each goes on where the one before was cut off
TIMEOUT_SECONDS = 30.0  # without a byte
PARTIAL = ".part"

Progress = Callable[[int, int], None]


def setup_model(
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    url: str = URL,
    files: Mapping[str, str] = FILES,
) -> Path:
    """Put the model's files into a folder; those that are there and right are not fetched again.

    A file is written beside its place and renamed when it is whole, so that no half of one is ever found. What was cut
    off goes on at the next call.

    Args:
        folder: None takes the cache folder, where the local embedder looks.
        progress: told (done_bytes, total_bytes) of the file under way; total_bytes is 0 where the server does not say.
        url: where the files are, without the slash in front of a file's name.
        files: name -> SHA-256, in hexadecimal.

    Returns: the folder.
    Raises: EmbedderError when a file could not be fetched, is not the expected one, or could not be written.
    """
    target = Path(folder).expanduser() if folder is not None else cache_folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, sha256 in files.items():
            if _sha256(target / name) != sha256:
                _fetch(f"{url.rstrip('/')}/{name}", target / name, sha256, progress or _silent)
    except OSError as error:
        raise EmbedderError(f"{target} cannot be written ({error}): give another folder") from error
    return target


def _fetch(url: str, path: Path, sha256: str, progress: Progress) -> None:
    """Fetch one file, going on where an earlier attempt stopped."""
    partial = path.with_name(path.name + PARTIAL)
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        resumed = partial.exists()
        try:
            _download(url, partial, progress)
        except httpx.RequestError as error:
            problem = error
            continue
        if _sha256(partial) == sha256:
            partial.replace(path)
            return
        partial.unlink()
        if not resumed:  # else the first part may be of another file: once more from the beginning
            raise EmbedderError(f"{url} is not the expected file (its SHA-256 is not {sha256}): check the address")
    raise EmbedderError(
        f"{url} could not be fetched ({problem or 'it changed under way'}): run it again, it goes on where it stopped; "
        f"or fetch {WEIGHTS} and {TOKENIZER} of {MODEL} elsewhere and set {ENVIRONMENT} to their folder"
    ) from problem


def _download(url: str, partial: Path, progress: Progress) -> None:
    """Append to `partial` what it lacks, or write it anew where the server does not send parts."""
    done = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT_SECONDS) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is lacking: the hash says whether what is there is right
        if not response.is_success:
            raise EmbedderError(f"{url} answered {response.status_code}: check the address, or try again later")
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            done = 0
        total = done + int(response.headers.get("Content-Length", -done))  # 0 where the server does not say
        with partial.open("ab" if done else "wb") as file:
            for chunk in response.iter_bytes():
                file.write(chunk)
                done += len(chunk)
                progress(done, total)


def _sha256(path: Path) -> str | None:
    """The file's SHA-256 in hexadecimal; None where there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _silent(done_bytes: int, total_bytes: int) -> None:
    """No progress is shown."""
