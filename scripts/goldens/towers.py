"""Freezes positions of vision towers, hidden states of a small SigLIP at two sizes of pictures, and
with a folder hidden states of a sentence encoder.

    python scripts/goldens/towers.py                      # huggingface/towers.npz
    python scripts/goldens/towers.py all-MiniLM-L6-v2     # also checkpoints/minilm.npz

It needs torch and transformers 5.24. tests/encodings/test_picture_positions.py and
tests/experiments/invariance/test_released_encoder.py read the files, and
tests/lab/model/test_towers.py.
"""

# pyright: reportMissingImports=false

import pathlib
import sys
from typing import Any

import numpy as np
import torch
from drawn import drawn
from transformers import (
    AutoModel,
    AutoTokenizer,
    DINOv3ViTConfig,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "goldens"
GRIDS = [[1, 6, 8], [2, 10, 6]]  # frames, rows, columns
MERGE, WINDOW, PATCH, PREFIX = 2, 112, 14, 5
TEXTS = "The order of words changes what a sentence says.", "Padding must not change it."
EVERY = 16  # channel of hidden states is stored


def towers() -> dict[str, Any]:
    """Positions of Qwen2-VL's and Qwen2.5-VL's patches; queries that DINOv3 has turned."""
    grid = torch.tensor(GRIDS)
    pos = get_vision_position_ids(grid, MERGE)
    order, ends = get_vision_window_index(grid, MERGE, WINDOW, PATCH)
    by_window = pos.reshape(-1, MERGE**2, 2)[order].reshape(-1, 2)
    sizes = {"image_size": [96, 64], "patch_size": 16, "hidden_size": 16}
    config = DINOv3ViTConfig(**sizes, num_attention_heads=1)
    rope = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()
    torch.manual_seed(0)
    q = torch.randn(1, 1, PREFIX + 24, 16)
    turned, _ = dinov3.apply_rotary_pos_emb(q, q, *rope(torch.zeros(1, 3, 96, 64)))
    return {
        "qwen2/pos": pos.numpy().astype(np.int32),
        "qwen2_5/pos": by_window.numpy().astype(np.int32),
        "qwen2_5/ends": ends.numpy().astype(np.int32),
        "dinov3/q": q[0, 0].numpy(),
        "dinov3/turned": turned[0, 0].numpy(),
    }


SIGLIP = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip
SIZES = (16, 16), (12, 28)  # of pictures, height and width; the table is that of the first


def siglip() -> dict[str, Any]:
    """Pixels and hidden states, as trained and at another size; the shapes of the tensors."""
    model = SiglipVisionModel(SiglipVisionConfig(**SIGLIP)).eval()
    shapes = {f"vision_model.{name}": [*x.shape] for name, x in model.state_dict().items()}
    weights = drawn("siglip", shapes)
    model.load_state_dict(
        {name.removeprefix("vision_model."): torch.tensor(x) for name, x in weights.items()}
    )
    arrays: dict[str, Any] = {f"siglip/shape/{n}": np.array(shape) for n, shape in shapes.items()}
    for n, size in enumerate(SIZES):
        pixels = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(n))
        output = model(pixels, interpolate_pos_encoding=n > 0)
        arrays[f"siglip/pixels {n}"] = pixels.numpy()
        arrays[f"siglip/states {n}"] = output.last_hidden_state[0].numpy()
    return arrays


def encoder(folder: str) -> dict[str, Any]:
    """Ids, hidden states and the mean vector of two sentences."""
    model, words = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    arrays = {}
    for n, text in enumerate(TEXTS):
        batch = words([text], return_tensors="pt")
        output = model(**batch, output_hidden_states=True)
        vector = output.last_hidden_state[0].mean(0)
        arrays[f"{n}/ids"] = batch.input_ids[0].numpy()
        arrays[f"{n}/states"] = torch.stack(output.hidden_states)[:, 0, :, ::EVERY].numpy()
        arrays[f"{n}/vector"] = (vector / vector.norm()).numpy()
    return arrays


if __name__ == "__main__":
    with torch.no_grad():
        np.savez_compressed(FOLDER / "huggingface" / "towers.npz", **towers(), **siglip())
        for path in sys.argv[1:]:
            np.savez_compressed(FOLDER / "checkpoints" / "minilm.npz", **encoder(path))
