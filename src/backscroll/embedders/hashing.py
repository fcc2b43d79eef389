"""Vectors without a model: hashed words and pieces of words.

Two texts are near each other where they share words, or share most letters of a word ("run", "running"). What
is meant in other words is not seen. For tests, for machines without the model, and for languages that it
does not know: Chinese and Japanese are taken by single characters and pairs of them.

The same text gives the same bits in any process: sums are of whole numbers, so their order does not matter.

Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009, section 2 (signed
hashing). Unlike the paper, a feature counts 1 + ln(times) and not its times.
"""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backscroll.errors import EmbedderError
from backscroll.types import Vectors

DIMENSIONS = (64, 128, 256, 384, 512, 768, 1024)
TEXTS_PER_PASS = 512
UNIT = 1024  # what a feature's weight of 1 is as a whole number
WORD, PIECE, PAIR = (np.uint64(seed) for seed in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
# Recall at 10 on LoCoMo: .28; with pieces at .4 of a word .22, with words alone .19 (2026-11-20).
WEIGHTS = {WORD: 0.5, PIECE: 1.0, PAIR: 1.0}
STEP = np.uint64(0x100000001B3)  # by which a character's place in its feature multiplies
NOT_A_WORD = np.uint64(0)

Codes = NDArray[np.uint64]
Numbers = NDArray[np.int64]


class HashingEmbedder:
    """Embeds by hashing words, three-letter pieces of words, and pairs of Chinese or Japanese characters.

    Args:
        dimension: one of 64, 128, 256, 384, 512, 768, 1024. More make it rarer that two features share a place.

    >>> sleeps, slept, taxes = HashingEmbedder().embed(["my cat sleeps", "the cat slept", "tax forms"])
    >>> bool(sleeps @ slept > sleeps @ taxes)
    True
    """

    max_tokens = 512  # longer texts are read to the end, but a vector of so many words says little

    def __init__(self, dimension: int = 256) -> None:
        if dimension not in DIMENSIONS:
            raise EmbedderError(f"the hashing embedder has no dimension {dimension}: there are {DIMENSIONS}")
        self.dimension = dimension
        self.name = f"hashing-{dimension}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts.

        Returns: (n, d) float32, unit rows, in the order of `texts`; a text without words is the first unit vector.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), TEXTS_PER_PASS):
            some = texts[start : start + TEXTS_PER_PASS]
            vectors[start : start + len(some)] = self._embed_pass(some)
        return vectors

    def close(self) -> None:
        """Nothing is held."""

    def _embed_pass(self, texts: Sequence[str]) -> Vectors:
        codes, owners = _codes(texts)
        sums = np.zeros(len(texts) * self.dimension)
        for kind, (features, of_text) in {
            WORD: _words(codes, owners),
            PIECE: _pieces(codes, owners),
            PAIR: _pairs(codes, owners),
        }.items():
            hashes = _mix(features ^ kind)
            once, times = _count(hashes, of_text)
            weights = np.rint(UNIT * WEIGHTS[kind] * (1 + np.log(times)))
            signs = 1 - 2 * (hashes[once] >> np.uint64(63)).astype(np.float64)
            places = of_text[once] * self.dimension + (hashes[once] % np.uint64(self.dimension)).astype(np.int64)
            sums += np.bincount(places, weights=signs * weights, minlength=len(sums))
        rows = sums.reshape(len(texts), self.dimension)
        lengths = np.sqrt((rows * rows).sum(axis=1))  # (n,)
        rows[lengths == 0, 0] = 1
        lengths[lengths == 0] = 1
        vectors: Vectors = (rows / lengths[:, np.newaxis]).astype(np.float32)
        return vectors


def open_hashing(dimension: str) -> HashingEmbedder:
    """Open the embedder by what follows ``hashing:`` in its name."""
    if not re.fullmatch(r"\d*", dimension, re.ASCII):
        raise EmbedderError(f"hashing:{dimension}: what follows the colon is a dimension, one of {DIMENSIONS}")
    return HashingEmbedder(int(dimension)) if dimension else HashingEmbedder()


def _codes(texts: Sequence[str]) -> tuple[Codes, Numbers]:
    """The characters of all texts as one array, and whose they are.

    Returns: (c,) code points, with one `NOT_A_WORD` between words, in front of the first and after the last;
        and (c,) the index of the text of each.
    """
    plain = [f" {unicodedata.normalize('NFKC', text).casefold()} " for text in texts]
    encoded = "".join(plain).encode("utf-32-le", "replace")
    codes = np.frombuffer(encoded, dtype="<u4").astype(np.uint64)
    owners = np.repeat(np.arange(len(texts)), [len(text) for text in plain])
    seen, which = np.unique(codes, return_inverse=True)
    in_word = np.array([chr(code).isalnum() for code in seen.tolist()], dtype=bool)[which]
    codes = np.where(in_word, codes, NOT_A_WORD)
    kept = in_word.copy()
    kept[1:] |= in_word[:-1]
    kept[:1] = True
    return codes[kept], owners[kept]


def _is_wide(codes: Codes) -> NDArray[np.bool_]:
    """Whether a character is of a script written without spaces: Chinese, Japanese; Korean syllables beside them."""
    return ((codes >= 0x2E80) & (codes < 0xE000)) | (codes >= 0x20000)


def _words(codes: Codes, owners: Numbers) -> tuple[Codes, Numbers]:
    """One number for each word; a wide character is a word of its own."""
    wide = _is_wide(codes)
    in_word = codes != NOT_A_WORD
    starts = in_word & (np.concatenate([[True], ~in_word[:-1] | wide[:-1]]) | wide)
    letters, firsts = codes[in_word], np.flatnonzero(starts[in_word])
    if not len(firsts):
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    lengths = np.diff(firsts, append=len(letters))
    places = np.arange(len(letters)) - np.repeat(firsts, lengths)
    steps = np.cumprod(np.full(int(lengths.max()), STEP))  # wraps around at 64 bits, as hashing does
    return np.add.reduceat(letters * steps[places], firsts), owners[starts]


def _pieces(codes: Codes, owners: Numbers) -> tuple[Codes, Numbers]:
    """One number for every three characters in a row of one word, its two ends counted as characters."""
    before, middle, after = codes[:-2], codes[1:-1], codes[2:]
    inside = middle != NOT_A_WORD
    pieces = before[inside] * STEP + middle[inside] * STEP * STEP + after[inside] * STEP * STEP * STEP
    return pieces, owners[1:-1][inside]


def _pairs(codes: Codes, owners: Numbers) -> tuple[Codes, Numbers]:
    """One number for every two wide characters in a row."""
    wide = _is_wide(codes)
    both = wide[:-1] & wide[1:]
    return codes[:-1][both] * STEP + codes[1:][both] * STEP * STEP, owners[:-1][both]


def _mix(numbers: Codes) -> Codes:
    """Spread numbers over all 64 bits.

    Source: Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014, section 5 (mix64variant13).
    """
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _count(hashes: Codes, of_text: Numbers) -> tuple[Numbers, Numbers]:
    """Where each feature of each text stands first, and how many times the text has it."""
    order = np.lexsort((hashes, of_text))
    hash_changes = np.diff(hashes[order], prepend=~hashes[order][:1]) != 0
    text_changes = np.diff(of_text[order], prepend=-1) != 0
    firsts = np.flatnonzero(hash_changes | text_changes)
    return order[firsts], np.diff(firsts, append=len(order))
