"""The row of each type of config of transformers 5.24, by its `model_type`."""

from typing import Any

from posenc_jax.huggingface.types.composite_types import COMPOSITES
from posenc_jax.huggingface.types.other_types import OTHERS
from posenc_jax.huggingface.types.picture_types import PICTURES
from posenc_jax.huggingface.types.rotary_types import ROTARY
from posenc_jax.huggingface.types.table_types import TABLES

ROWS: dict[str, Any] = {**ROTARY, **TABLES, **PICTURES, **OTHERS, **COMPOSITES}
