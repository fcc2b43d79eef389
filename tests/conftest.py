"""What the tests share: how long Hypothesis searches, and memories that are closed afterwards."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import backscroll
from backscroll.memory import Memory

settings.register_profile("ci", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("ci"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def memory() -> Iterator[Memory]:
    """An empty memory that knows no meaning, only words."""
    with backscroll.open(":memory:", embedder="hashing") as opened:
        yield opened


@pytest.fixture
def understanding() -> Iterator[Memory]:
    """An empty memory with the local model, for where the meaning matters."""
    with backscroll.open(":memory:", embedder="local") as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_memory() -> Iterator[Memory]:
    """One memory for many generated chats, each of a user of its own: opening one costs more than asking it."""
    with backscroll.open(":memory:", embedder="hashing") as opened:
        yield opened
