"""The encodings of released models against the models themselves, frozen by make_goldens.py."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, frame, from_huggingface, weights
from posenc_jax.encoding import place
from posenc_jax.options import FieldError
from tests.catalogue import gap
from tests.test_goldens import filled, standing, wide

FOLDER = Path(__file__).parent / "goldens" / "huggingface"
ROWS = json.loads((FOLDER / "models.json").read_text())
WIDTH = 32


def arrays(row):
    """The frozen arrays of one model by name."""
    with np.load(FOLDER / "models.npz") as file:
        start = f"{row['case']}/"
        return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def ours(config, row, found):
    """What our encoding of the config makes of the frozen queries and keys, by name."""
    encoding = from_huggingface(config)
    time = found["code"].shape[1] if "code" in found else found["0/q"].shape[1]
    at = standing(found["pos"] if "pos" in found else np.arange(time)[None])
    own = {name: array for name, array in found.items() if name.startswith("params/")}
    if "code" in found:
        params = filled(encoding.init(jax.random.key(0), Dims(WIDTH, 1, WIDTH)), own)
        zeros = jnp.zeros((1, time, WIDTH), float)
        return {"code": encoding.embed(params, zeros, place(encoding, None, at))}
    heads, head = found["0/q"].shape[2:]
    layers = sum(name.endswith("/weights") for name in found)
    dims = Dims(WIDTH, heads, head, layers)
    params = filled(encoding.init(jax.random.key(0), dims), own)
    view = frame(encoding, params, at, dims, causal=row["causal"], form="dense")
    q_and_k = lambda n: (wide(found[f"{n}/{x}"]) for x in "qk")
    return {f"{n}/weights": weights(*q_and_k(n), view.layer(n)) for n in range(layers)}


@pytest.mark.parametrize("row", ROWS, ids=[row["case"].replace(" ", "_") for row in ROWS])
def test_encoding_of_a_config_is_the_models(row):
    """Every layer attends as the model does, for old files and those of transformers 5."""
    found = arrays(row)
    wrong = {**row["config"], **row["wrong"]}
    with jax.enable_x64(True):
        saved = jax.jit(lambda: ours(row["saved"], row, found))()
        read = ours(row["config"], row, found)
        for name, made in read.items():
            assert gap(made, found[name]) < 1e-5, name
            assert gap(saved[name], made) < 1e-6, name
        try:
            other = ours(wrong, row, found)
        except (AssertionError, FieldError):  # a table of another size
            return
    far = max(gap(other[name], found[name]) for name in read)
    assert far > 1e-3, "control: a wrong config must be seen"
