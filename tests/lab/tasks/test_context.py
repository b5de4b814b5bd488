"""Tests of what a model takes from its context: the same targets, spans that are read again."""

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.tokens import context
from posenc_jax.lab.tasks.tokens.shards import Stream
from posenc_jax.lab.tasks.tokens.task import embedded_tokenizer, of_streams
from posenc_jax.options import FieldError

SEPARATOR, LONGEST, DOCUMENTS = 0, 600, 6
SIZES = 300, 433, LONGEST


@pytest.fixture(scope="module")
def streams():
    """Documents of a few hundred tokens; a third of each repeats, so that spans must be chosen."""
    rng = np.random.default_rng(0)

    def document(size):
        id_N = rng.integers(1, 4096, size, np.uint16)
        third = size // 3
        id_N[third : 2 * third] = id_N[:third]
        return np.concatenate([[np.uint16(SEPARATOR)], id_N])

    def split(sizes):
        return Stream([np.concatenate([document(size) for size in sizes])])

    sizes = [700, 50, 601, 600, 599, 900, 610, 620]
    return {"train": split([3000]), "valid": split(sizes), "test": split(sizes)}


def task_of(streams, test, most=10_000):
    words = embedded_tokenizer()
    assert words.separator == SEPARATOR
    facts = {"bytes": {split: 2 * len(stream) for split, stream in streams.items()}}
    return of_streams("own", streams, words, most, facts, test, LONGEST)


def read(task, size, split="test", rows=range(8)):
    batch = task.test(task.data, jnp.arange(len(rows)), size, task.width(size) + 7, split)
    return [np.asarray(leaf) for leaf in batch[:3]]


def predicted_by_lookup(token_T, key):
    """At each place the token that followed the same `key` tokens earlier in the line; -1: none."""
    token_T = token_T.tolist()
    predicted = np.full(len(token_T), -1)
    for place in range(key - 1, len(token_T)):
        last = token_T[place + 1 - key : place + 1]
        for earlier in range(place - key, -1, -1):
            if token_T[earlier : earlier + key] == last:
                predicted[place] = token_T[earlier + key]
                break
    return predicted


def test_same_end_scores_the_same_targets_at_every_size(streams):
    task = task_of(streams, "same_end")
    longest, *_ = read(task, LONGEST)
    whole = task_of(streams, "windows")
    for size in SIZES:
        tokens_BT, targets_BT, weights_BT = read(task, size)
        # A separator and 600 tokens are 600 inputs and a target; the document of 599 is too short.
        assert (weights_BT.sum(1) == [context.END] * DOCUMENTS + [0] * 2).all()
        for row in range(DOCUMENTS):
            np.testing.assert_array_equal(
                tokens_BT[row, :size], longest[row, LONGEST - size : LONGEST]
            )
            np.testing.assert_array_equal(targets_BT[row, : size - 1], tokens_BT[row, 1:size])
            np.testing.assert_array_equal(np.flatnonzero(weights_BT[row]), range(size - 256, size))
    _, _, weights_BT = read(whole, SIZES[0])
    assert weights_BT[0].sum() == SIZES[0], "control: windows score every target"


def test_a_line_is_around_the_middle_of_one_document(streams):
    task = task_of(streams, "same_end")
    id_N = streams["test"].read(0, len(streams["test"]))
    tokens_BT, *_ = read(task, LONGEST)
    starts = np.flatnonzero(id_N == SEPARATOR)
    sizes = np.diff(np.append(starts, len(id_N)))
    for row, (start, size) in enumerate(
        (a, b) for a, b in zip(starts, sizes, strict=True) if b > LONGEST
    ):
        first = start + (size - LONGEST - 1) // 2
        np.testing.assert_array_equal(tokens_BT[row, :LONGEST], id_N[first : first + LONGEST])


@pytest.mark.parametrize("split", ["test", "valid"])
@pytest.mark.parametrize("size", SIZES)
def test_recalled_tokens_can_be_copied_from_one_place_of_the_line(streams, size, split):
    tokens_BT, targets_BT, weights_BT = read(task_of(streams, "recall"), size, split)
    distances = []
    for row in range(DOCUMENTS):
        scored = np.flatnonzero(weights_BT[row])
        np.testing.assert_array_equal(scored, range(size - 12, size))
        predicted_T = predicted_by_lookup(tokens_BT[row, :size], context.KEY)
        np.testing.assert_array_equal(predicted_T[scored], targets_BT[row, scored])
        span = targets_BT[row, size - context.SPAN : size]
        before = np.lib.stride_tricks.sliding_window_view(tokens_BT[row, : size - 15], context.SPAN)
        (places,) = np.flatnonzero((before == span).all(1))[None]
        assert len(places) == 1
        distances.append(size - context.SPAN - places[0])
    assert min(distances) >= context.SPAN
    assert len(set(distances)) > 1
    assert weights_BT[DOCUMENTS:].sum() == 0


def test_recalled_spans_are_drawn_anew_at_each_size(streams):
    task = task_of(streams, "recall")
    spans = [read(task, size)[1][:DOCUMENTS, size - 16 : size] for size in SIZES]
    assert not (spans[0] == spans[1]).all()
    np.testing.assert_array_equal(spans[0], read(task, SIZES[0])[1][:DOCUMENTS, 284:300])


@pytest.mark.parametrize("size", SIZES)
def test_an_absent_span_cannot_be_copied(streams, size):
    tokens_BT, targets_BT, weights_BT = read(task_of(streams, "recall_absent"), size)
    for row in range(DOCUMENTS):
        (scored,) = np.flatnonzero(weights_BT[row])[None]
        predicted_T = predicted_by_lookup(tokens_BT[row, :size], context.KEY)
        assert (predicted_T[scored] == -1).all()
        assert targets_BT[row, scored].min() > 0


def test_spans_without_a_copy_by_a_second_way(streams):
    id_N = streams["test"].read(0, 300)
    grams = [tuple(id_N[n : n + context.KEY]) for n in range(len(id_N) - context.KEY + 1)]
    for other_N, allowed in ((id_N, 1), (streams["valid"].read(0, 700), 0), (id_N.copy(), 0)):
        others = [tuple(other_N[n : n + context.KEY]) for n in range(len(other_N) - 3)]
        wanted = [
            n + context.SPAN <= len(id_N)
            and all(others.count(gram) <= allowed for gram in grams[n : n + 13])
            for n in range(len(id_N))
        ]
        np.testing.assert_array_equal(context.spans_without_copy(id_N, other_N), wanted)


def test_a_document_that_only_repeats_has_no_span_and_counts_nothing():
    id_N = np.concatenate([[0], np.tile(np.arange(1, 31), 40)]).astype(np.uint16)
    streams = {split: Stream([id_N]) for split in ("train", "valid", "test")}
    _, _, weights_BT = read(task_of(streams, "recall"), LONGEST)
    assert not weights_BT.any()
    _, _, weights_BT = read(task_of(streams, "same_end"), LONGEST)
    assert weights_BT.any(), "control"
    with pytest.raises(FieldError, match=r"^task.test: 'recall_absent': no document has 16 tokens"):
        task_of(streams, "recall_absent")


def test_most_bounds_the_number_of_targets(streams):
    assert task_of(streams, "same_end", 3 * context.END).examples(LONGEST) == 3
    assert task_of(streams, "same_end", 1).examples(LONGEST) == 1
    assert task_of(streams, "same_end").examples(LONGEST) == DOCUMENTS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"test": "recal"}, "^task.test: 'recal' is not one of: 'windows', 'same_end', 'recall', "),
        ({"test": "recall", "context": 47}, "^task.context: 47 is too small; 48 or more"),
        ({"test": "same_end", "context": 255}, "^task.context: 255 is too small; 256 or more"),
    ],
)
def test_what_is_no_test_is_refused_in_one_line(options, said):
    with pytest.raises(FieldError, match=said):
        tasks.make("stdlib_tokens", **options)


def test_documents_that_are_all_shorter_are_refused(streams):
    words, facts = embedded_tokenizer(), {"bytes": {split: 1 for split in streams}}
    with pytest.raises(FieldError, match=r"^task.context: 901: a split has no document of more"):
        of_streams("own", streams, words, 1000, facts, "recall", 901)
