"""all-MiniLM-L6-v2 on this machine: ONNX Runtime on the CPU, int8, without PyTorch.

A graph without weights ships with the package; the weights are read from the model's `model.safetensors`,
quantized here, and handed to the runtime. Reading that file takes no package: it is the length of a header,
the header as JSON, and raw arrays, which stay in the file until they are touched.

A text is always run alone, without padding. Integer multiplication scales a whole input by its largest value,
so in a batch a text's vector would depend on the texts beside it; alone it depends on nothing else, and that
is hardly slower (some 700 lines a second against 745 in batches, two cores, 2026-11-20). Many texts are run side by
side by threads, each multiplying on one core. A single text may get the cores for itself, where that is quicker: it is
in a loop (.9 ms for 1.5), and need not be after a pause, as in a chat, where the second core is woken first (on a
virtual machine without VNNI 6.6 ms for 4.8). Not where several threads ask, as in a server: there a second core that
helps is taken from another request. Either way the vectors are the same bits, in any process on the same kind of CPU.
(An x86 CPU without VNNI adds pairs of products with saturation: its vectors differ a little, at the same distance from
full precision: cosine .991 for .994.)

Knows nothing about passages: what is longer than `max_tokens` is cut off.
"""

import hashlib
import importlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.cores import usable_cores
from backscroll.embedders.model_files import MODEL, TOKENIZER, WEIGHTS, find_model
from backscroll.embedders.quicker import Quicker
from backscroll.errors import EmbedderError
from backscroll.types import Vectors

GRAPH = Path(__file__).with_name("minilm.onnx")  # made by scripts/build_minilm_graph.py
DIMENSION = 384
LAYERS = 6
MAX_TOKENS = 256
VOCABULARY = 30_522
MAX_CHARACTERS = 16_384  # no text needs more for 256 tokens; a book would be tokenized whole only to be cut off
# SHA-256 of the model's norms and biases (0.1 MB of 91): a model that was trained further differs there.
FINGERPRINT = "27727c14eb0ddeb448b022af92029d1da1e0b188ff0b591647838d03f32663ad"
LARGEST_WEIGHT = 127  # int8, symmetric
FEW_TEXTS = 8  # of a turn: the prompt, the reply before it, the parts of a query
MAX_LATENCY_THREADS = 4  # a query has some 20 tokens: more cores than that have nothing to multiply
SHORT_CHARACTERS = 256  # a longer text has enough to multiply for all cores
ALONE_SECONDS = 10.0  # after another thread's question: what asks from one thread has the cores for itself
TEXTS_PER_TASK = 8  # fewer than a batch has for each thread: the texts are not all of one length

Array = NDArray[Any]


class LocalEmbedder:
    """Embeds with all-MiniLM-L6-v2 on this machine's CPU.

    Constructing it only finds the model; the first call of `embed` loads it (0.3 s). Safe to share between threads.

    Args:
        path: folder with `model.safetensors` and `tokenizer.json`; None looks in the usual places.
        threads: texts to embed side by side; None takes the CPUs that this process may use.

    Raises: ModelNotFoundError when the model is not on this machine; EmbedderError for `threads` below 1.
    """

    name = f"{MODEL}/int8"
    dimension = DIMENSION
    max_tokens = MAX_TOKENS

    def __init__(self, path: str | os.PathLike[str] | None = None, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise EmbedderError(f"threads is {threads}: it must be at least 1")
        self.folder = find_model(path)
        self.threads = threads or usable_cores()
        self._loaded: _Model | None = None
        self._loading = threading.Lock()
        self._asker = threading.get_ident()
        self._shared_until = 0.0  # by the monotonic clock
        self._ways = Quicker()  # one core, several

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, each on its own.

        Returns: (n, 384) float32, unit rows, in the order of `texts`.
        Raises: EmbedderError when the model cannot be loaded.
        """
        if not texts:
            return np.zeros((0, DIMENSION), dtype=np.float32)
        model = self._model()
        is_shared = self._is_shared()
        if len(texts) == 1 and not is_shared:
            return self._embed_one(model, texts[0])
        if self.threads == 1 or (is_shared and len(texts) <= FEW_TEXTS):
            return model.embed_in_turn(texts)
        size = min(TEXTS_PER_TASK, -(-len(texts) // self.threads))
        tasks = [texts[start : start + size] for start in range(0, len(texts), size)]
        with ThreadPoolExecutor(min(self.threads, len(tasks))) as pool:
            return np.concatenate(list(pool.map(model.embed_in_turn, tasks)))

    def close(self) -> None:
        """Let go of the model; embedding again loads it again."""
        with self._loading:
            self._loaded = None

    def _embed_one(self, model: "_Model", text: str) -> Vectors:
        """A text that nobody waits beside; a short one on as many cores as was quicker of late."""
        if len(text) > SHORT_CHARACTERS:
            return model.embed_alone(text)
        way = self._ways.choose()
        began = time.perf_counter()
        vector = model.embed_alone(text) if way else model.embed_in_turn([text])
        self._ways.took(way, time.perf_counter() - began)
        return vector

    def _is_shared(self) -> bool:
        """Whether several threads ask in turns."""
        asker, now = threading.get_ident(), time.monotonic()
        if asker != self._asker:
            self._asker, self._shared_until = asker, now + ALONE_SECONDS
        return now < self._shared_until

    def _model(self) -> "_Model":
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self.folder, self.threads)
            return self._loaded


def open_local(folder: str) -> LocalEmbedder:
    """Open the embedder by what follows ``local:`` in its name."""
    return LocalEmbedder(folder or None)


@dataclass(frozen=True)
class _Model:
    """The loaded model.

    Attributes:
        tokenizer: `tokenizers.Tokenizer`.
        alone: session that runs one text on several cores.
        beside: session that runs a text on one core, so that several texts run side by side.
        words: (30522, 384) the tokens' vectors, in the file: the runtime would copy them, once for each session.
        positions: (256, 384) what a token's place adds to its vector.
        weights: arrays that both sessions read; they must live as long as the sessions.
    """

    tokenizer: Any
    alone: Any
    beside: Any
    words: NDArray[np.float32]
    positions: NDArray[np.float32]
    weights: Mapping[str, Array]

    def embed_alone(self, text: str) -> Vectors:
        return self._run(self.alone, text)

    def embed_in_turn(self, texts: Sequence[str]) -> Vectors:
        return np.concatenate([self._run(self.beside, text) for text in texts])

    def _run(self, session: Any, text: str) -> Vectors:
        readable = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()  # half a surrogate pair is no text
        ids = self.tokenizer.encode(readable).ids
        embeddings = self.words[ids] + self.positions[: len(ids)]  # (tokens, 384)
        vector: Vectors = session.run(["vector"], {"embeddings": embeddings[np.newaxis]})[0]  # (1, 384)
        return vector


def _load(folder: Path, threads: int) -> _Model:
    try:
        tensors = read_safetensors(folder / WEIGHTS)
        _check_identity(tensors)
        weights = dict(_graph_weights(tensors))
        tokenizer = _open_tokenizer(folder / TOKENIZER)
    except (OSError, ValueError, KeyError) as error:
        raise EmbedderError(
            f"{folder} does not hold {MODEL} ({type(error).__name__}: {error}): "
            "run `backscroll setup-model` to fetch it, or give another folder"
        ) from error
    words = tensors["embeddings.word_embeddings.weight"]
    one_sentence = tensors["embeddings.token_type_embeddings.weight"][0]  # (384,) a text is never a pair here
    positions = tensors["embeddings.position_embeddings.weight"][:MAX_TOKENS] + one_sentence
    beside = _open_session(weights, 1)
    alone = _open_session(weights, min(threads, MAX_LATENCY_THREADS)) if threads > 1 else beside
    return _Model(tokenizer, alone, beside, words, positions, weights)


def _check_identity(tensors: Mapping[str, Array]) -> None:
    """Raise ValueError for another model of the same shape: its vectors would be stored under this one's name."""
    vectors = (array for name, array in sorted(tensors.items()) if array.ndim == 1)
    if hashlib.sha256(b"".join(array.tobytes() for array in vectors)).hexdigest() != FINGERPRINT:
        raise ValueError("the weights are another model's")


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The float32 arrays of a safetensors file, by name, as read-only views of the file.

    Raises: OSError, or ValueError and KeyError where the file is something else or was cut off.

    Source: https://huggingface.co/docs/safetensors, "Format".
    """
    content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    start = 8 + int(content[:8].view("<u8")[0])
    header = json.loads(content[8:start].tobytes())
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = (start + offset for offset in entry["data_offsets"])
            arrays[name] = content[first:last].view("<f4").reshape(entry["shape"])
    return arrays


def _graph_weights(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The graph's weights by the names that it gives them."""
    yield from _norm_weights(tensors, "embeddings.LayerNorm", "norm")
    for layer in range(LAYERS):
        source = f"encoder.layer.{layer}"
        heads = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
        yield from _linear_weights(tensors, heads, f"{layer}.qkv")
        yield from _linear_weights(tensors, [f"{source}.attention.output.dense"], f"{layer}.attention")
        yield from _norm_weights(tensors, f"{source}.attention.output.LayerNorm", f"{layer}.attention_norm")
        yield from _linear_weights(tensors, [f"{source}.intermediate.dense"], f"{layer}.inner")
        yield from _linear_weights(tensors, [f"{source}.output.dense"], f"{layer}.output")
        yield from _norm_weights(tensors, f"{source}.output.LayerNorm", f"{layer}.output_norm")


def _norm_weights(tensors: Mapping[str, Array], source: str, name: str) -> Iterator[tuple[str, Array]]:
    for part in ("weight", "bias"):
        yield f"{name}.{part}", tensors[f"{source}.{part}"]  # (384,)


def _linear_weights(tensors: Mapping[str, Array], sources: Sequence[str], name: str) -> Iterator[tuple[str, Array]]:
    """One matrix out of those of `sources` side by side, quantized, with its scales and bias."""
    matrix = np.concatenate([tensors[f"{source}.weight"] for source in sources]).T  # (inputs, outputs)
    quantized, scale = quantize(matrix)
    yield f"{name}.weight", quantized
    yield f"{name}.scale", scale
    yield f"{name}.bias", np.concatenate([tensors[f"{source}.bias"] for source in sources])


def quantize(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize a matrix to int8, symmetric, with one scale for each output.

    One scale for the whole matrix would cost retrieval: cosine to the full precision .96 instead of .99.

    Args:
        matrix: (inputs, outputs).

    Returns: the integers, (inputs, outputs), and the scale of each column, (outputs,): matrix ~ integers * scale.
    """
    scale = (np.abs(matrix).max(axis=0) / LARGEST_WEIGHT).astype(np.float32)
    return np.ascontiguousarray(np.rint(matrix / scale).astype(np.int8)), scale


def _open_tokenizer(path: Path) -> Any:
    tokenizers = _import("tokenizers")
    content = path.read_text(encoding="utf-8")
    if len(json.loads(content)["model"]["vocab"]) != VOCABULARY:
        raise ValueError("the tokenizer is another model's")
    tokenizer = tokenizers.Tokenizer.from_str(content)
    tokenizer.no_padding()  # the file pads every text to 128 tokens, which makes a short one 6 times slower
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _open_session(weights: Mapping[str, Array], threads: int) -> Any:
    onnxruntime = _import("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Two threads that spin between the steps of a run answer in .9 ms, one in 1.5; spinning on after it costs others.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])


def _import(package: str) -> Any:
    """Import a package that only a loaded model needs: 0.1 s that opening a store does not have to wait for."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise EmbedderError(f"the local embedder needs the package {package}: `pip install {package}`") from error
