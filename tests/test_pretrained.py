"""Released models read from folders against transformers' logits, frozen by make_goldens.py."""

import json
import tracemalloc
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from posenc_jax.encoding import Encoding
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.transformer import build
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError
from scripts.goldens.drawn import digest, drawn
from tests.catalogue import gap

FOLDER = Path(__file__).parent / "goldens" / "checkpoints"
ROWS = json.loads((FOLDER / "models.json").read_text())
BY_CASE = {row["case"]: row for row in ROWS}
IDS, LENGTHS = 29, (9, 6)
# Two documents: the first alone and padded on the right, on the left, and before the second one.
SEGMENTS = np.array([[1] * 9 + [0] * 6, [0] * 6 + [1] * 9, [1] * 9 + [2] * 6])


def folder_of(path, case, **changes):
    """A folder of the case, as transformers saves it, with other fields in its config."""
    row = BY_CASE[case]
    path.mkdir(parents=True, exist_ok=True)
    save_file(drawn(case, row["tensors"]), path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps({**row["config"], **changes}))
    return path


def documents():
    return [(np.arange(n) * (5 + 2 * n) + n) % (IDS - 3) + 3 for n in LENGTHS]


def frozen(case):
    with np.load(FOLDER / "logits.npz") as file:
        return [file[f"{case}/{n}"] for n in range(2)]


def rows():
    """Tokens [3, 15] of `SEGMENTS`; padding has a token too."""
    first, second = documents()
    other = np.full(6, 7)
    lines = [[*first, *other], [*other, *first], [*first, *second]]
    return jnp.asarray(np.array(lines, np.int32))


def by_rows(logits, case):
    """The largest gap to the frozen logits of the documents in the rows."""
    first, second = frozen(case)
    found = logits[0, :9], logits[1, 6:], logits[2, :9], logits[2, 9:]
    return max(gap(a, b) for a, b in zip(found, (first, first, first, second), strict=True))


def alone(config):
    """The tokens and layout of the first document; of an encoder-decoder after the second."""
    first, second = (jnp.asarray(x, jnp.int32)[None] for x in documents())
    if config.kind != "encoder_decoder":
        return first, full(1, 9)
    return Pair(second, first), Pair(full(1, 6), full(1, 9))


def in_rows(config):
    """The tokens and layout of `SEGMENTS`; sources are padded on the other side."""
    if config.kind != "encoder_decoder":
        return rows(), layout(SEGMENTS)
    first, second = documents()
    other = np.full(9, 7)
    sources = np.array([[*second, *other], [*other, *second], [*second, *first]], np.int32)
    segments = np.array([[1] * 6 + [0] * 9, [0] * 9 + [1] * 6, [1] * 6 + [2] * 9])
    return Pair(jnp.asarray(sources), rows()), Pair(layout(segments), layout(SEGMENTS))


def token_by_token(model, params, tokens, at):
    """Logits of the document's tokens one after another, with a cache."""
    if isinstance(tokens, Pair):
        cache = model.start(params, tokens.source, at.source, 9)
        tokens, at = tokens.target, at.target
    else:
        cache = model.start(params, 1, 9)

    def step(cache, n):
        newest = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, n, 1, 1)
        logits, cache = model.decode(params, newest(tokens), jax.tree.map(newest, at), cache)
        return cache, logits[0, 0]

    return jax.lax.scan(step, cache, jnp.arange(9))[1]


def every_pass(found, params):
    """Logits of the document alone, of the rows, and token by token if attention is causal."""
    model, one = found.model, alone(found.config)
    stepwise = None if found.config.kind == "encoder" else token_by_token(model, params, *one)
    return model.apply(params, *one)[0], model.apply(params, *in_rows(found.config)), stepwise


@pytest.mark.parametrize("row", ROWS, ids=[row["case"].replace(" ", "_") for row in ROWS])
def test_a_released_model_has_its_logits(row, tmp_path):
    """Of a document alone, padded, packed and token by token; and it is saved as it was read."""
    case, wrong = row["case"], row["wrong"]
    found = pretrained.load(folder_of(tmp_path / "theirs", case))
    whole, padded, stepwise = jax.jit(partial(every_pass, found))(found.params)
    assert gap(whole, frozen(case)[0]) < 1e-4
    assert by_rows(padded, case) < 1e-4
    assert stepwise is None or gap(stepwise, frozen(case)[0]) < 1e-4

    pretrained.save(tmp_path / "ours", row["saves"], found.params)
    assert digest(tmp_path / "ours") == row["saved"], "see CONTRIBUTING.md, Goldens"

    if wrong:
        other, params = pretrained.released({**row["config"], **wrong}).encoding, found.params
    else:
        other, params = Encoding(), {**found.params, "encoding": {}}
    other = build(found.config, other, found.vocab)
    whole = jax.jit(other.apply)(params, *alone(found.config))[0]
    assert gap(whole, frozen(case)[0]) > 1e-3, "control: other positions"
