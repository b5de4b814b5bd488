"""How the vector of a text is made of a model's hidden states, as a folder of Hugging Face says it.

Folders of sentence encoders have modules.json, a list of steps, and 1_Pooling/config.json.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.dtypes import widest
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model.pretrained.tensors import read_json, read_list
from posenc_jax.layout import Layout
from posenc_jax.options import FieldError, choices_for, shown

Mode = Literal["mean", "mean_sqrt_len", "max", "first", "last", "weighted_mean"]
# Fields that switch a mode on, and their mode.
SWITCHES: dict[str, Mode] = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
STEPS = "Transformer", "Pooling", "Normalize"


class Pooling(NamedTuple):
    """Makes one vector of the hidden states of a text's tokens.

    mode: "mean" over tokens; "mean_sqrt_len", their sum divided by the root of their number; "max"
      of each channel; the "first" or the "last" token; "weighted_mean", token n with weight n.
    normalized: the vector has the length 1.
    """

    mode: Mode = "mean"
    normalized: bool = False

    def __call__(self, x_BTD: jax.Array, layout: Layout) -> jax.Array:
        """The vectors [B, D] of rows of tokens, in float32 or wider. Padding has no share; a row of
        several documents has one vector.
        """
        real_BT = jnp.broadcast_to(layout.segment_BT > 0, x_BTD.shape[:2])
        x_BTD = x_BTD.astype(widest(x_BTD.dtype))
        order_BT = jnp.cumsum(real_BT, axis=1)
        order_BT = order_BT.astype(x_BTD.dtype)
        count_B1 = jnp.maximum(order_BT[:, -1:], 1)
        if self.mode == "max":
            vector_BD = jnp.where(real_BT[..., None], x_BTD, -jnp.inf).max(axis=1)
        else:
            weight_BT = {
                "mean": 1 / count_B1,
                "mean_sqrt_len": count_B1**-0.5,
                "first": (order_BT == 1).astype(x_BTD.dtype),
                "last": (order_BT == count_B1).astype(x_BTD.dtype),
                "weighted_mean": 2 * order_BT / (count_B1 * (count_B1 + 1)),
            }[self.mode]
            weight_BT = jnp.where(real_BT, weight_BT, 0)
            vector_BD = jnp.einsum("bt,btd->bd", weight_BT, jnp.where(real_BT[..., None], x_BTD, 0))
        if not self.normalized:
            return vector_BD
        return vector_BD / jnp.maximum(jnp.linalg.norm(vector_BD, axis=-1, keepdims=True), 1e-12)


def read(folder: str | Path) -> Pooling | None:
    """The pooling of a folder; None: it says none.

    Raises:
      FieldError: no mode or several modes; a step after pooling that is not known.
      Refused: a file that is damaged.
    """
    folder = Path(folder)
    steps = [{"path": "1_Pooling", "type": "Pooling"}]
    if (folder / "modules.json").is_file():
        steps = read_list(folder / "modules.json")
    types = [str(step.get("type", "")).split(".")[-1] for step in steps]
    for n, name in enumerate(types):
        if name not in STEPS:
            raise FieldError(("modules", n, "type"), f"{shown(name)}{choices_for(name, STEPS)}")
    if "Pooling" not in types:
        return None
    where = str(steps[types.index("Pooling")].get("path", ""))
    path = folder / where / "config.json"
    if Path(where).name != where:
        raise Refused(f"{folder}: modules.json: {shown(where)} is not the name of a folder in it")
    if not path.is_file():
        return None
    return Pooling(_mode(read_json(path)), "Normalize" in types)


def _mode(config: dict[str, Any]) -> Mode:
    """The one mode that is on."""
    on: list[Mode] = [mode for name, mode in SWITCHES.items() if config.get(name)]
    if len(on) != 1:
        names = ", ".join(SWITCHES)
        raise FieldError("pooling_mode", f"{len(on)} modes are on; one must be, of {names}")
    return on[0]
