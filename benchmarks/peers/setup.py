"""Make a virtual environment for one peer, or for all of them: nothing of theirs goes into Backscroll's own.

    python benchmarks/peers/setup.py langchain
    python benchmarks/peers/setup.py all

What is installed is pinned, with hashes, in requirements/<peer>.txt; the folder is .venvs/<peer>, and may be deleted.
"""
# ruff: noqa: S603

import argparse
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("langchain", "langgraph", "llamaindex", "mem0", "mempalace")
READY = ".ready"


def python_of(peer: str) -> Path:
    """Where the interpreter of a peer's environment is."""
    scripts = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
    return HERE / ".venvs" / peer / Path(*scripts)


def is_ready(peer: str) -> bool:
    """Whether the environment was made of the requirements that there are now."""
    made = HERE / ".venvs" / peer / READY
    return made.is_file() and made.read_bytes() == _requirements(peer).read_bytes()


def make(peer: str) -> None:
    """Make the environment anew."""
    venv.create(HERE / ".venvs" / peer, clear=True, with_pip=True)
    command = [python_of(peer), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--require-hashes", "--requirement", _requirements(peer)], check=True)
    (HERE / ".venvs" / peer / READY).write_bytes(_requirements(peer).read_bytes())


def _requirements(peer: str) -> Path:
    return HERE / "requirements" / f"{peer}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the virtual environment of a peer.")
    parser.add_argument("peer", nargs="+", choices=[*PEERS, "all"])
    asked = parser.parse_args().peer
    for peer in PEERS if "all" in asked else dict.fromkeys(asked):
        if is_ready(peer):
            print(f"{peer}: ready")
            continue
        print(f"{peer}: installing")
        make(peer)


if __name__ == "__main__":
    main()
