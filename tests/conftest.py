"""What the tests share: how long Hypothesis searches, what clients trust, and memories that are closed afterwards."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings

import backscroll
from backscroll.memory import Memory

settings.register_profile("ci", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("ci"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# All servers of the tests speak plain HTTP. Each client reads the authorities that it trusts all the same: 140 of them
# took 43 ms of every request that makes its own client (2026-11), here and in the processes that the tests start.
_ONE = tempfile.NamedTemporaryFile(suffix=".pem")  # noqa: SIM115 - as long as the tests run
_ONE.write(re.search(rb"-----BEGIN.*?END CERTIFICATE-----\n", Path(certifi.where()).read_bytes(), re.DOTALL)[0])
_ONE.flush()
os.environ["SSL_CERT_FILE"] = _ONE.name


@pytest.fixture
def memory() -> Iterator[Memory]:
    """An empty memory that knows no meaning, only words."""
    with backscroll.open(":memory:", embedder="hashing") as opened:
        yield opened


@pytest.fixture(scope="session")
def calibration() -> tuple[str, str]:
    """The name and value of the local model's calibration: making it for each memory costs a second."""
    with backscroll.open(":memory:", embedder="local") as opened:
        opened.min_similarity(opened.settings)
        name = f"calibration {opened.embedder.name}"
        return name, opened.store.setting(name) or ""


@pytest.fixture
def understanding(calibration) -> Iterator[Memory]:
    """An empty memory with the local model, for where the meaning matters."""
    with backscroll.open(":memory:", embedder="local") as opened:
        opened.store.put_setting(*calibration)
        yield opened


@pytest.fixture(scope="session")
def shared_memory() -> Iterator[Memory]:
    """One memory for many generated chats, each of a user of its own: opening one costs more than asking it."""
    with backscroll.open(":memory:", embedder="hashing") as opened:
        yield opened
