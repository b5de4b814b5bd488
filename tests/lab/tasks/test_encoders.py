"""Tasks for encoders, their control, and the experiments `classification` and `dna`."""

import collections
import functools
import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare import page as comparison_page
from posenc_jax import make
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import parse
from posenc_jax.lab.tasks.shuffled import shuffled
from posenc_jax.lab.tasks.source_target import paired
from posenc_jax.lab.tasks.task import BOS, EXTRA, PAD, SYMBOL
from posenc_jax.layout import full
from tests.support.refusing import config_of, refused

A, C, G, T = range(SYMBOL, SYMBOL + 4)
LABELLED = ("negation", "spacing")


def verdict(words):
    """Of a review with 8 words of each kind: 16 to 23 praise, 24 to 31 blame."""
    clauses = [[]]
    for word in words:
        clauses[-1].append(word)
        if word >= SYMBOL + 16:
            clauses.append([])
    *clauses, rest = clauses
    praise = [word < SYMBOL + 24 for *_, word in clauses]
    assert not rest
    assert 2 * sum(praise) == len(clauses)
    assert all(clause[0] < SYMBOL + 8 for clause in clauses)
    ((negated),) = [i for i, clause in enumerate(clauses) if EXTRA in clause]
    assert clauses[negated].index(EXTRA) == 1
    return int(not praise[negated])


def apart(bases):
    text = "".join("ACGT"[base - SYMBOL] for base in bases)
    assert re.fullmatch("[AT]*GG[AT]*CC[AT]*", text)
    return int(text.index("CC") - text.index("GG") == 6)


def framed(bases):
    actual = list(bases)
    for start in range(0, len(bases), 3):
        for here, other in ((start, start + 2), (start + 2, start)):
            if actual[here] == EXTRA:
                actual[here] = A + T - actual[other]
    return actual


def spliced(bases):
    text = "".join("?" if base == EXTRA else "ACGT"[base - SYMBOL] for base in bases)
    for actual in re.finditer(r"(?=([ACT])GT[CT]{1,4}AG\?)", text):
        at = text.index("?", actual.start())
        bases = [*bases[:at], A + T - bases[actual.start()], *bases[at + 1 :]]
    return bases


def watched(tokens):
    """(number and column of the digit, its seconds, tones, words) of a clip."""
    *stream, first, second = tokens
    count, frames, tones = len(stream) // 10, [], []
    while stream:
        now = min(2, count - len(frames))
        for _ in range(now):
            frames, stream = [*frames, stream[:9]], stream[9:]
        tones, stream = [*tones, *(tone - SYMBOL - 11 for tone in stream[:now])], stream[now:]
    seen = [
        (at, patch // 3, patch % 3, token - SYMBOL - 1)
        for at, frame in enumerate(frames)
        for patch, token in enumerate(frame)
        if token != SYMBOL
    ]
    seconds, rows, columns, digits = (list(of) for of in zip(*seen, strict=True))
    assert len(set(digits)) == len(set(columns)) == 1
    assert 2 <= len(seen) <= 3
    assert seconds == [*range(seconds[0], seconds[0] + len(seen))]
    assert rows in ([0, 1, 2][: len(seen)], [2, 1, 0][: len(seen)])
    assert len(seen) == 3 or seconds[-1] == count - 1
    words = [word - SYMBOL - 20 for word in (first, second)]
    return (digits[0], columns[0], rows), seconds, tones, words


def answered(tokens, question="tone"):
    (digit, column, _), seconds, tones, (first, second) = watched(tokens)
    if question == "order":
        assert first != second
        assert digit in (first, second)
        return int(digit == first)
    assert first == second == -1
    return tones[seconds[0]] if question == "tone" else column


SOLVED = {
    "negation": verdict, "spacing": apart, "reading_frame": framed, "splice": spliced,
    "clips": answered,
}  # fmt: skip


def compiled(function):
    """Programs of integers give the same unoptimised, and compile twice as fast."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def drawn(name):
    """16 examples of each of three sizes: in training, in another width, and of the test split."""
    task = tasks.make(name)
    size_B = jnp.repeat(task.least + jnp.asarray([0, 1, 4], jnp.int32), 16)
    width, index_B = task.width(task.least + 4), jnp.arange(48, dtype=jnp.int32)

    def every(key):
        train, wide = (task.sample((), key, size_B, width + more) for more in (0, 7))
        return train, wide, task.numbered((), index_B, size_B, width, "test")

    return task, jax.device_get(compiled(every)(jax.random.key(1)))


def rows(batch):
    """(tokens after BOS, targets there or the label) of each row, after checking its padding."""
    for row in range(len(batch.tokens_BT)):
        inside = batch.layout.segment_BT[row] > 0
        tokens, targets = batch.tokens_BT[row], batch.targets_BT[row]
        assert (tokens[inside] != PAD).all()
        assert (tokens[~inside] == PAD).all()
        assert tokens[0] == BOS
        targets = int(targets[0]) if len(targets) == 1 else targets[inside][1:].tolist()
        yield tokens[inside][1:].tolist(), targets


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", [*tasks.names("whole"), *tasks.names("clips")])
def test_answers_are_those_of_plain_python(name):
    task, (train, wide, test) = drawn(name)
    solve, actual = SOLVED[name], [*rows(train), *rows(test)]
    assert all(solve(tokens) == answer for tokens, answer in actual)
    assert len({str(tokens) for tokens, _ in actual}) > 80
    assert [*rows(wide)] == [*rows(train)], "in another width as well"
    if name in LABELLED:  # with two labels
        share = np.mean([answer for _, answer in actual])
        assert abs(share - 0.5) < 0.2
    elif name != "clips":
        hidden = train.tokens_BT == EXTRA
        assert (train.weights_BT == hidden).all()
        assert hidden.any(axis=1).mean() > 0.9
        assert not all(tokens == answer for tokens, answer in actual), "control"
    assert max(max(tokens) for tokens, _ in actual) < task.vocab


def test_clips_have_three_questions_and_positions():
    def read():
        actual = {}
        for question, ids in (("column", "all"), ("order", "time"), ("tone", "index")):
            task = tasks.make("clips", question=question, ids=ids)
            actual[question] = task.test((), jnp.arange(24), 5, task.width(5) + 2)
        return actual

    batches = jax.device_get(compiled(read)())
    for question, batch in batches.items():
        answers = [answered(tokens, question) for tokens, _ in rows(batch)]
        assert answers == batch.targets_BT[:, 0].tolist()
        assert len(set(answers)) > 1
    tokens_T, pos_T3 = (batches["column"].tokens_BT[0], batches["column"].layout.pos_BT[0])
    tone_T = (tokens_T >= SYMBOL + 11) & (tokens_T < SYMBOL + 19)
    assert pos_T3[tone_T].tolist() == [[second] * 3 for second in range(1, 6)]
    digit_T = (tokens_T > SYMBOL) & (tokens_T < SYMBOL + 11)
    (_, column, rows_at), seconds, _, _ = watched(tokens_T[1:53].tolist())
    wanted = [[1 + t, 1 + row, 1 + column] for t, row in zip(seconds, rows_at, strict=True)]
    assert pos_T3[digit_T].tolist() == wanted
    assert batches["order"].layout.pos_BT[0][tone_T].tolist() == [1, 2, 3, 4, 5]
    assert batches["tone"].layout.pos_BT[0][:54].tolist() == [*range(53), 0]


@pytest.mark.thorough
def test_a_review_has_a_twin_with_the_same_words_and_the_other_verdict():
    _, (train, *_) = drawn("negation")
    for words, label in rows(train):
        praise = [i for i, word in enumerate(words) if SYMBOL + 16 <= word < SYMBOL + 24]
        blame = [i for i, word in enumerate(words) if word >= SYMBOL + 24]
        twin = list(words)
        for i, j in zip(praise, blame, strict=True):
            twin[i], twin[j] = words[j], words[i]
        assert collections.Counter(twin) == collections.Counter(words)
        assert verdict(twin) == 1 - label


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["splice", "spacing"])
def test_shuffled_moves_tokens_and_their_targets_together(name):
    task = tasks.make(name)
    index_B, size = jnp.arange(16), task.least + 3
    read = lambda t: t.test((), index_B, size, task.width(size) + 3)
    plain, moved = jax.device_get(compiled(lambda: (read(task), read(shuffled(task))))())
    changed = 0
    for row in range(16):
        inside = plain.layout.segment_BT[row] > 0
        if name == "splice":
            columns = [
                sorted(np.stack([x[row] for x in b[:3]], 1).tolist()) for b in (plain, moved)
            ]
            assert columns[0] == columns[1]
        assert sorted(plain.tokens_BT[row]) == sorted(moved.tokens_BT[row])
        assert (moved.tokens_BT[row][~inside] == PAD).all()
        assert moved.tokens_BT[row][0] == BOS
        changed += (plain.tokens_BT[row] != moved.tokens_BT[row]).any()
    assert changed == 16
    assert (plain.layout.pos_BT == moved.layout.pos_BT).all()
    if name == "spacing":
        assert (plain.targets_BT == moved.targets_BT).all()


@pytest.mark.thorough
def test_shuffled_keeps_documents_and_targets_of_pairs(tmp_path):
    fasta = tmp_path / "proteins.fa"
    letters = np.random.default_rng(0).choice(list("ACDEFGHIKLMNPQRSTVWY"), (600, 40))
    fasta.write_text("".join(f">{i}\n{''.join(row)}\n" for i, row in enumerate(letters)))
    task = tasks.make(f"file:{fasta}", stretch=64, masked=0.2)
    read = lambda t: t.test(task.data, jnp.arange(1), 64, 64)
    plain, moved = compiled(lambda: (read(task), read(shuffled(task))))()
    segment_T = np.asarray(plain.layout.segment_BT[0])
    first, then = (np.asarray(batch.targets_BT[0]) for batch in (plain, moved))
    assert len(set(segment_T)) > 1
    assert (first != then).any()
    for segment in set(segment_T):
        assert sorted(first[segment_T == segment]) == sorted(then[segment_T == segment])
    pairs = paired(tasks.make("translation"))
    read = lambda t: t.test((), jnp.arange(4), 2, 25)
    plain, moved = compiled(lambda: (read(pairs), read(shuffled(pairs))))()
    assert (plain.targets_BT == moved.targets_BT).all()
    assert (plain.tokens_BT.target == moved.tokens_BT.target).all()
    assert (plain.tokens_BT.source != moved.tokens_BT.source).any(), "control"


@pytest.mark.thorough
def test_the_label_is_read_from_the_first_token_or_from_the_mean():
    config = ModelConfig(kind="encoder", width=16, heads=2, layers=1, mlp=1)
    tokens_BT, at = jnp.asarray([[1, 5, 6, 7]], jnp.int32), full(1, 4)
    whole = transformer.build(config, make("rope"), 9)

    def outputs(key):
        params = whole.init(key)
        answers = (
            transformer.classifier(config, make("rope"), 9, pooling=pooling)
            for pooling in ("first", "mean")
        )
        return [model.apply(params, tokens_BT, at) for model in (whole, *answers)]

    wanted, first, mean = jax.jit(outputs)(jax.random.key(0))
    assert np.allclose(first, wanted[:, :1], atol=1e-5)
    assert np.allclose(mean, wanted.mean(axis=1, keepdims=True), atol=1e-5)
    assert np.abs(first - mean).max() > 1e-2


def reviews(path, count=60):
    text = "".join(f"{('bad', 'good')[i % 2]}\treview number {i} é\n" for i in range(count))
    path.write_text(text, "utf-8")
    return f"labels:{path}"


@pytest.mark.thorough
def test_own_texts_are_read_and_cut(tmp_path):
    task = tasks.make(reviews(tmp_path / "reviews.tsv"))
    assert task.facts["labels"] == ["bad", "good"]
    assert sum(task.facts["texts"].values()) == 60
    batch = task.test(task.data, jnp.arange(99), 12, task.width(12) + 2)
    assert batch.tokens_BT.shape == (99, 15)
    count = task.examples(12)
    assert batch.weights_BT[:, 0].tolist() == [1.0] * count + [0.0] * (99 - count)
    for tokens, label in itertools.islice(rows(jax.device_get(batch)), count):
        assert bytes(token - SYMBOL for token in tokens) == b"review number"[:12]
        assert label in (0, 1)
    whole = jax.device_get(task.test(task.data, jnp.arange(count), 40, 41))
    texts = [bytes(t - SYMBOL for t in tokens).decode() for tokens, _ in rows(whole)]
    numbers = [int(text.split()[2]) % 2 for text in texts]
    assert numbers == [label for _, label in rows(whole)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["cannot be read: No such file"]),
        ("good\tone\nno tab\n", ["line 2 is not a label, a tab and a text"]),
        ("good\tone\ngood\ttwo\n", ["has 1 labels; 2 to 256"]),
        ("good\tone\nbad\ttwo\n", ["too few texts"]),
    ],
)
def test_wrong_files_of_labels_are_refused(tmp_path, text, words):
    path = tmp_path / "reviews.tsv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"task\.name: labels:") as caught:
        tasks.check(f"labels:{path}", reads="whole")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of `dna` on hidden bases: its folder and its summary."""
    workdir = tmp_path_factory.mktemp("dna")
    changes = {"train__steps": 60, "train__lr": 1e-2, "train__chunk": 60, "eval__lengths": (12,)}
    config = config_of("dna", "nope,sinusoidal,quick", seeds=1, **changes)
    experiments.prepare(config, str(workdir))()
    return workdir, json.loads((workdir / "summary.json").read_text())


@pytest.mark.thorough
def test_shuffled_tokens_change_nothing_without_positions(run):
    results = run[1]["results"]
    score = lambda row: results[row]["12"]["mean"]
    assert score("nope, shuffled") == pytest.approx(score("nope"), abs=0.02)
    assert set(results["nope, shuffled"]) == {"12"}
    assert abs(score("sinusoidal, shuffled") - score("sinusoidal")) > 0.02, "control"


@pytest.mark.thorough
def test_it_ends_in_a_report_and_a_page(run):
    workdir, summary = run
    assert (workdir / "report.html").stat().st_size > 10_000
    figures = {path.stem for path in (workdir / "figures").iterdir()}
    assert {"by_length", "control", "training"} <= figures
    assert set(comparison_page.in_order(parse(summary)).results) == {"nope", "sinusoidal"}
    stored = runs.read(workdir)
    name, said, sections = experiments.document([stored])
    assert name == "dna"
    best, rule = said
    compared = control = sections[0].parts[0]
    assert best.startswith("At the trained length, 12 codons, ")
    assert "has the best token accuracy, " in best
    score = lambda row: f"{summary['results'][row]['12']['mean']:.3f}"
    assert f"nope (no positions) {score('nope')}, chance 0." in compared
    assert f"nope {score('nope, shuffled')}" in control
    assert rule == comparison_page.RULE
    assert sections[0].title == "reading_frame"
    with pytest.raises(ValueError, match="are both on reading_frame"):
        experiments.document([stored, stored._replace(path=workdir / "again")])


@pytest.mark.thorough
def test_a_run_on_labels_of_own_texts(tmp_path):
    changes = {"train__steps": 4, "train__chunk": 2, "train__length": 8, "eval__lengths": (8,)}
    changes |= {"task__name": reviews(tmp_path / "reviews.tsv"), "pooling": "first"}
    config = config_of("classification", "rope,quick", seeds=1, **changes)
    experiments.prepare(config, str(tmp_path / "run"))()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metric"] == "accuracy"
    assert set(summary["results"]) == {"rope", "rope, shuffled"}
    assert set(summary["baselines"]) == {"most frequent label"}


@pytest.mark.parametrize(
    ("stem", "changes", "words"),
    [
        ("classification", {"model.kind": "decoder"}, ["model.kind", "decoder", "encoder"]),
        ("classification", {"task.name": "copy"}, ["task.name", "copy", "negation", "labels:PATH"]),
        ("classification", {"task.name": "splice"}, ["task.name", "splice", "hides tokens"]),
        ("classification", {"task.name": "clips"}, ["task.name", "a task of clips", "negation"]),
        ("dna", {"task.name": "clips"}, ["task.name", "a task of clips", "spacing"]),
        ("classification", {"task.name": "negatoin"}, ["task.name", "did you mean negation"]),
        ("classification", {"task.word": 3}, ["task.word", "choices: words"]),
        ("classification", {"pooling": "last"}, ["pooling", "'last'", "mean"]),
        ("classification", {"eval.lengths": (4,)}, ["eval.lengths", "must hold", "2"]),
        ("classification", {"eval.variants": ("yarn",)}, ["eval.variants"]),
        ("classification", {"encoding.name": "axial"}, ["encoding.name", "axial", "2 axes"]),
        ("dna", {"task.name": "dna"}, ["task.name", "dna", "reading_frame", "file:PATH"]),
        ("dna", {"task.name": "stdlib"}, ["task.masked", "0.15"]),
        ("dna", {"train.length": 3, "train.min_length": 3}, ["train.min_length", "4 or more"]),
        ("extrap", {"task.name": "splice"}, ["task.name", "splice", "encoders", "copy"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(stem, changes, words):
    refused(config_of(stem), changes, words)
