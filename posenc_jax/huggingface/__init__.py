"""The positional encodings of a released model, read from its config.json and written into it."""

from collections.abc import Mapping
from typing import Any

from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.reading import read_all
from posenc_jax.huggingface.rows import Answer
from posenc_jax.huggingface.types import ROWS
from posenc_jax.huggingface.writing import write
from posenc_jax.options import Count, FieldError, checked_all

__all__ = ["from_huggingface", "parts_from_huggingface", "to_huggingface"]


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


def to_huggingface(
    encoding: Encoding, model_type: str, layers: Count | None = None
) -> dict[str, Any]:
    """The fields of a config.json of this type that say the encoding, `model_type` among them.

    `from_huggingface` reads the same encoding from them: equal frames. They are fields of
    transformers 5. Write them over those of a config of the type: `{**config, **fields}`. Sizes of
    pictures are written with the size of a patch of the type's defaults. Of a model of several
    parts, write the fields of one part, by its type; of an encoder and a decoder, those of the one
    that the encoding fits.

    Args:
      encoding: a method of the catalogue, a chain, or layers of `per_layer`.
      model_type: the type of config.
      layers: layers of the model; they are needed where a field has an entry for each.

    FieldError: an argument of another type; the code of the model does not read a field that the
    encoding needs; in one line that names the field.

    Example:
      config |= posenc_jax.to_huggingface(posenc_jax.make("yarn", ramp="pairs"), "llama")
    """
    stated = {"encoding": encoding, "model_type": model_type}
    stated |= {} if layers is None else {"layers": layers}
    layers = checked_all("to_huggingface", to_huggingface, **stated).get("layers")
    return {"model_type": model_type, **write(encoding, model_type, ROWS, layers)}
