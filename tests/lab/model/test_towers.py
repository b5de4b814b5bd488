"""A tower of pictures, read from a folder, against frozen hidden states of transformers' SigLIP."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from posenc_jax.encodings import picture_positions
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model import pretrained
from posenc_jax.layout import full
from posenc_jax.options import FieldError
from scripts.goldens.drawn import drawn
from tests.encodings.test_picture_positions import frozen
from tests.lab.model.test_pretrained import folder_of
from tests.support.catalogue import gap

CONFIG = {
    "model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "image_size": 16, "patch_size": 4,
}  # fmt: skip
SIGLIP = frozen("siglip")
SHAPES = {n.removeprefix("shape/"): shape for n, shape in SIGLIP.items() if "shape/" in n}


def tower(path, config=CONFIG, **others):
    """A folder with the tower's tensors, and others."""
    path.mkdir(parents=True, exist_ok=True)
    tensors = drawn("siglip", {name: tuple(shape) for name, shape in SHAPES.items()})
    save_file({**tensors, **others}, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))
    return path


def states(tower_model, picture):
    """Hidden states [T, D] of a frozen picture."""
    pixels = jnp.asarray(SIGLIP[f"pixels {picture}"])
    x_BTF = pretrained.patches(pixels, tower_model.patch)
    rows, columns = (size // 4 for size in pixels.shape[2:])
    pos_T2 = picture_positions.tokens([(rows, columns)]).pos_T2
    at = full(1, rows * columns).replace(pos_BT=jnp.asarray(pos_T2)[None])
    return jax.jit(tower_model.model.apply)(tower_model.params, x_BTF, at)[0]


def test_a_tower_has_its_states_at_the_trained_and_at_another_size(tmp_path):
    folder = tower(tmp_path / "theirs")
    trained, other = pretrained.load(folder), pretrained.load(folder, image=(3, 7))
    assert trained.states
    assert trained.patch == (3, 4, 4)
    assert gap(states(trained, 0), SIGLIP["states 0"]) < 1e-4
    assert gap(states(other, 1), SIGLIP["states 1"]) < 1e-4
    turned = pretrained.load(folder, image=(7, 3))
    assert gap(states(turned, 1), SIGLIP["states 1"], nan=True) > 1e-2, "control: another table"

    pretrained.save(tmp_path / "ours", CONFIG, trained.params)
    again = load_file(tmp_path / "ours" / "model.safetensors")
    theirs = load_file(folder / "model.safetensors")
    assert {*again} == {name for name in theirs if ".head." not in name}
    for name, array in again.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_the_tower_is_read_out_of_the_whole_model(tmp_path):
    """SigLIP's file has the text's tower beside it; other tensors are refused."""
    sizes = {name: value for name, value in CONFIG.items() if name != "model_type"}
    whole = {"model_type": "siglip", "text_config": {}, "vision_config": sizes}
    text = {"text_model.head.weight": np.ones((2, 2), np.float32)}
    scale = {"logit_scale": np.ones(1, np.float32), "logit_bias": np.ones(1, np.float32)}
    actual = pretrained.load(tower(tmp_path / "whole", whole, **text, **scale))
    assert gap(states(actual, 0), SIGLIP["states 0"]) < 1e-4
    with pytest.raises(Refused, match="tensor adapter"):
        pretrained.load(tower(tmp_path / "other", whole, adapter=np.ones(2, np.float32)))
    default = pretrained.released({"model_type": "siglip_vision_model"})
    assert (default.config.width, default.config.layers, default.features) == (768, 12, 768)


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (
            lambda folder, text: pretrained.load(text, image=(2, 2)),
            r"^image: \(2, 2\) are patches of a picture; the model reads text",
        ),
        (
            lambda folder, text: pretrained.load(folder, image=(0, 2)),
            r"^encoding.image_rows: 0 must be 1 or more",
        ),
        (
            lambda folder, text: pretrained.patches(jnp.zeros((1, 3, 8, 9)), (3, 4, 4)),
            r"^pixels: shape \(1, 3, 8, 9\) is not cut by patches of \(3, 4, 4\)",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(ask, line, tmp_path):
    folder, text = tower(tmp_path / "tower"), folder_of(tmp_path / "text", "bert")
    with pytest.raises(FieldError, match=line) as error:
        ask(folder, text)
    assert "\n" not in str(error.value)
