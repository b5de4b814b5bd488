"""Freezes positions of vision towers, and with a folder hidden states of a sentence encoder.

    python scripts/goldens/towers.py                      # huggingface/towers.npz
    python scripts/goldens/towers.py all-MiniLM-L6-v2     # also checkpoints/minilm.npz

It needs torch and transformers 5.24. tests/encodings/test_picture_positions.py and
tests/experiments/invariance/test_released_encoder.py read the files.
"""

# pyright: reportMissingImports=false

import pathlib
import sys
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, DINOv3ViTConfig
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
        np.savez_compressed(FOLDER / "huggingface" / "towers.npz", **towers())
        for path in sys.argv[1:]:
            np.savez_compressed(FOLDER / "checkpoints" / "minilm.npz", **encoder(path))
