"""What an experiment on a released model refuses, and which encodings the model is read under."""

import jax
import jax.numpy as jnp

from experiments import config_checks
from experiments.pretrained import prompts
from experiments.pretrained.config import Config, lengths
from experiments.pretrained.extensions import Extended, extended
from posenc_jax.lab import tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.pretrained import links
from posenc_jax.lab.model.pretrained.tensors import Tensors, read_json
from posenc_jax.lab.model.transformer import build
from posenc_jax.layout import full
from posenc_jax.options import FieldError, choices_for


def extensions(config: Config) -> Extended:
    """The encodings that the model is read under. Refused, FieldError: as `check`."""
    released = read_json(config.folder / "config.json")
    with inside("model.checkpoint"):
        models = extended(released, config.factor, config.model.length)
    _check_rows("rows", config.rows, models)
    wanted = {"plain", *config.rows} if config.rows else {*models.encodings}
    chosen = {name: encoding for name, encoding in models.encodings.items() if name in wanted}
    return models._replace(encodings=chosen)


def _check_rows(field: str, names: tuple[str, ...], models: Extended) -> None:
    """FieldError: a row that is not among the encodings."""
    for name in names:
        if name not in models.encodings:
            raise FieldError(field, f"{name!r} does not fit{choices_for(name, models.encodings)}")


def check(config: Config) -> None:
    """Raises FieldError or Refused for what cannot run, before weights are read."""
    models = extensions(config)
    pretrained.tokenizer(config.folder)
    tensors = Tensors(config.folder)  # refuses files that are missing or cut off
    links.check_depth(models.released, tensors)
    for name in config.prompts:
        prompts.read(name)
    if config.train.batch % config.train.accumulate:
        reason = f"{config.train.batch} is not divisible by accumulate {config.train.accumulate}"
        raise FieldError("train.batch", reason)
    if config.train.steps:
        _check_rows("train.rows", config.train.rows, models)
    if 1 not in config.eval.multiples:
        reason = "1 must be among them: rows are compared with plain at the trained length"
        raise FieldError("eval.multiples", reason)
    config_checks.text_of_bytes(config.task)
    tasks.check(config.task.name, {}, **config.task.options)
    _check_reach(models, max(lengths(config, models.length)))


def _check_reach(models: Extended, length: int) -> None:
    """FieldError: the model's own positions do not reach so far, such as those of a table."""
    model = build(models.released.config, models.released.encoding, models.released.vocab)
    params = jax.eval_shape(model.init, jax.random.key(0))
    read = lambda params: model.apply(params, jnp.zeros((1, length), jnp.int32), full(1, length))
    try:
        jax.eval_shape(read, params)
    except ValueError as error:
        raise FieldError("eval.multiples", f"{length} tokens: {error}") from None
