"""The positional encodings of a released model, read from its config.json."""

from collections.abc import Mapping
from typing import Any

from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.reading import read_all
from posenc_jax.huggingface.rows import Answer
from posenc_jax.huggingface.types import ROWS
from posenc_jax.options import FieldError

__all__ = ["from_huggingface", "parts_from_huggingface"]


def from_huggingface(config: Mapping[str, Any]) -> Encoding:
    """The positional encoding of a model of Hugging Face's transformers, from its config.json.

    Files of transformers 5 and older ones are read. What is not positions stays with the model:
    norms of queries and keys, sinks, caps, other scales of logits.

    Heads are the model's own: of DeepSeek's the last `qk_rope_head_dim` channels turn. Learned
    tables have the rows of the model's weights. Of a model with an encoder and a decoder, a config
    with `is_decoder` is read as that of the decoder.

    Args:
      config: the file as a dictionary.

    FieldError: a model_type, a rope_type, or a field of positions that is not known, is missing or
    has a wrong value; a model of several parts, which `parts_from_huggingface` reads; one without
    an encoding, and why.

    Example:
      encoding = posenc_jax.from_huggingface(json.loads(Path("config.json").read_text()))
    """
    answers = parts_from_huggingface(config)
    kind = config["model_type"]
    if len(answers) > 1:
        first = next(iter(answers))
        reason = f"{kind!r} has several parts: {', '.join(answers)}; "
        reason += f"parts_from_huggingface(config)[{first!r}] is the first"
        raise FieldError("model_type", reason)
    (answer,) = answers.values()
    if isinstance(answer, str):
        raise FieldError("model_type", f"{kind!r} {answer}")
    return answer


def parts_from_huggingface(config: Mapping[str, Any]) -> dict[str, Answer]:
    """The positional encoding of each part of a model, from its config.json.

    A part is named by its field, as "text_config" and "vision_config" of a model of text and
    images, or "thinker_config.text_config" of a part's part; "encoder", "decoder" and "cross", for
    the decoder's attention to the encoder, of a model such as T5; "" where a model has one part.
    Text in place of an encoding says why a part has none: it has no attention, say, or it needs a
    method that is not in the catalogue. A part that attends without positions has `nope`.

    Args:
      config: the file as a dictionary.

    FieldError: as `from_huggingface`, but for models of several parts and parts without an
    encoding.

    Example:
      parts = posenc_jax.parts_from_huggingface(json.loads(Path("config.json").read_text()))
      encoding = parts["text_config"]
    """
    fields = Fields(config)
    return read_all(fields, fields.get("model_type", default="None"), ROWS)
