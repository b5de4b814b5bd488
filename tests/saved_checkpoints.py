"""Saves every frozen model with our code: python -m tests.saved_checkpoints FOLDER."""

import sys
import tempfile
from pathlib import Path

from posenc_jax.lab.model import pretrained
from tests.lab.model.test_pretrained import ROWS, folder_of


def main(folder: Path) -> None:
    for row in ROWS:
        with tempfile.TemporaryDirectory() as name:
            params = pretrained.load(folder_of(Path(name), row["case"])).params
            pretrained.save(folder / row["case"], row["saves"], params)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
