"""Baselines for models of bytes, on the bytes that they predict: frequencies and compressors.

    name              bits per byte of
    unigram           frequencies of bytes in the training text
    bigram            frequencies of bytes after a byte, backed off to the unigram
    trigram           frequencies of bytes after two bytes, backed off to the bigram
    gzip_250          gzip on the test bytes alone, with copies from at most 250 bytes before
    gzip, lzma        the test bytes compressed alone
    lzma_after_train  the test bytes compressed after the last 2 MiB of the training text

The frequency models are fitted to the training text, and their smoothing to the validation text.
A model with a window of n bytes reads 1 to n bytes before the one that it predicts; `CONTEXT` says
how many each baseline reads.
"""

import functools
import lzma
import zlib
from collections.abc import Mapping

import numpy as np

SMOOTHING = tuple(4.0**power for power in range(-3, 7))  # added counts
TAIL = 2**21  # bytes; lzma takes about a second for them
CHUNK = 2**24
CONTEXT = {  # what each baseline reads before the byte that it predicts
    "unigram": "no byte",
    "bigram": "1 byte",
    "trigram": "2 bytes",
    "gzip_250": "250 bytes, untrained",
    "gzip": "32 KiB, untrained",
    "lzma": "all test bytes before, untrained",
    "lzma_after_train": "all test bytes before and up to 2 MiB of training text",
}


def baselines(text: Mapping[str, np.ndarray], stretch: int) -> dict[str, float]:
    """Bits per byte of each baseline on bytes 1 .. stretch of the test text.

    Args:
      text: uint8 [N] for "train", "valid" and "test".
      stretch: how many bytes are predicted; byte 0 is given.
    """
    heads = {split: text[split][: stretch + 1] for split in ("valid", "test")}
    counts_VV = pair_counts(text["train"])
    unigram_V = _tuned(lambda k: unigram(counts_VV, k)[None], heads["valid"])[0]
    bigram_VV = _tuned(lambda k: bigram(counts_VV, unigram_V, k), heads["valid"])
    trigram_bits = _trigram_bits(text["train"], bigram_VV, heads["valid"], heads["test"])
    test = heads["test"][1:].tobytes()
    tail = text["train"][-TAIL:].tobytes()
    return {
        "unigram": bits_per_byte(unigram_V[None], heads["test"]),
        "bigram": bits_per_byte(bigram_VV, heads["test"]),
        "trigram": trigram_bits,
        "gzip_250": 8 * _gzip(test, 9) / stretch,
        "gzip": 8 * _gzip(test, 15) / stretch,
        "lzma": 8 * _lzma(test) / stretch,
        "lzma_after_train": 8 * (_lzma(tail + test) - _lzma(tail)) / stretch,
    }


def unigram_bits(text: Mapping[str, np.ndarray], stretch: int) -> float:
    """Bits per byte of the unigram model, the baseline of a model that knows no order."""
    heads = {split: text[split][: stretch + 1] for split in ("valid", "test")}
    counts_V = np.bincount(text["train"], minlength=256)
    unigram_V = _tuned(lambda k: unigram(counts_V[None], k)[None], heads["valid"])[0]
    return bits_per_byte(unigram_V[None], heads["test"])


def pair_counts(text_N: np.ndarray) -> np.ndarray:
    """How often byte b follows byte a, [256, 256]."""
    return _counts(text_N, 2)


def triple_counts(text_N: np.ndarray) -> np.ndarray:
    """How often byte c follows bytes a and b, [256, 256, 256]."""
    return _counts(text_N, 3)


def _counts(text_N: np.ndarray, length: int) -> np.ndarray:
    """How often each sequence of `length` bytes occurs, [256] * length."""
    counts = np.zeros(256**length, np.int64)
    for start in range(0, len(text_N) - length + 1, CHUNK):
        chunk = text_N[start : start + CHUNK + length - 1].astype(np.uint32)
        series, size = np.zeros(1, np.uint32), len(chunk) - length + 1
        for i in range(length):
            series = series * 256 + chunk[i : i + size]
        np.add.at(counts, series, 1)
    return counts.reshape([256] * length)


def unigram(counts_VV: np.ndarray, k: float) -> np.ndarray:
    """p(b), [256]: the counts, plus k in total that are spread evenly over the 256 bytes."""
    count_V = counts_VV.sum(axis=0)
    return (count_V + k / 256) / (count_V.sum() + k)


def bigram(counts_VV: np.ndarray, unigram_V: np.ndarray, k: float) -> np.ndarray:
    """p(b | a), [256, 256]: the counts, plus k in total that are spread as the unigram."""
    return (counts_VV + k * unigram_V) / (counts_VV.sum(axis=1, keepdims=True) + k)


def trigram(counts_VVV: np.ndarray, bigram_VV: np.ndarray, k: float, text_N: np.ndarray):
    """p of each byte of a text after its first two, [N - 2]: the counts of three bytes, plus k in
    total that are spread as the bigram.
    """
    a_N, b_N, c_N = text_N[:-2], text_N[1:-1], text_N[2:]
    total_N = counts_VVV.sum(axis=2)[a_N, b_N]
    return (counts_VVV[a_N, b_N, c_N] + k * bigram_VV[b_N, c_N]) / (total_N + k)


def bits_per_byte(p_VV: np.ndarray, text_N: np.ndarray) -> float:
    """The mean of -log2 p(b | a) over pairs of a text; p is [256, 256], or [1, 256] for all a."""
    context_N = text_N[:-1] if len(p_VV) > 1 else np.zeros(len(text_N) - 1, int)
    return float(-np.log2(p_VV[context_N, text_N[1:]]).mean())


def _tuned(model, valid_N: np.ndarray) -> np.ndarray:
    """The probabilities model(k) with the smoothing k that is best on the validation text."""
    return min((model(k) for k in SMOOTHING), key=lambda p_VV: bits_per_byte(p_VV, valid_N))


def _trigram_bits(train_N, bigram_VV, valid_N, test_N) -> float:
    """Bits per byte of the trigram model; the first byte is predicted by the bigram."""
    counts_VVV = triple_counts(train_N)

    def bits(k, text_N):
        first = bigram_VV[text_N[:1], text_N[1:2]]
        p_N = np.concatenate([first, trigram(counts_VVV, bigram_VV, k, text_N)])
        return float(-np.log2(p_N).mean())

    return bits(min(SMOOTHING, key=lambda k: bits(k, valid_N)), test_N)


def _gzip(text: bytes, log2_window: int) -> int:
    """The size of a gzip file. zlib copies from at most its window less 262 bytes before."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 16 + log2_window)
    return len(compressor.compress(text) + compressor.flush())


@functools.lru_cache(maxsize=4)  # of one text, for all runs of a process
def _lzma(text: bytes) -> int:
    return len(lzma.compress(text, format=lzma.FORMAT_ALONE, preset=6))
