"""The fields of the models of `permutation` and `padding_leakage`."""

from posenc_jax.lab.config import schema


class EncoderConfig(schema.ModelConfig):
    """The small models, or a released one.

    checkpoint: a folder of Hugging Face with an encoder; "": small models are trained.
    """

    checkpoint: str = ""
