"""The arrays of small models of transformers in tests/goldens/huggingface, and how they are stored:
NAME.npz, or NAME_1.npz, NAME_2.npz and so on, so that no file is large.
"""

import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "goldens" / "huggingface"
LARGEST = 400_000  # bytes of a file, nearly
HEADER = 260  # bytes of an array's name, type and shape in a file


def save(name: str, arrays: dict[str, np.ndarray], folder: pathlib.Path = FOLDER) -> None:
    """Writes arrays, in their order, in place of those stored under this name."""
    parts: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for key, array in arrays.items():
        needed = array.nbytes + HEADER
        if parts[-1] and size + needed > LARGEST:
            parts.append({})
            size = 0
        parts[-1][key] = array
        size += needed
    for path in _paths(name, folder):
        path.unlink()
    for n, part in enumerate(parts, 1):
        number = "" if len(parts) == 1 else f"_{n}"
        np.savez_compressed(folder / f"{name}{number}.npz", **part)  # type: ignore[arg-type]


def read(name: str, case: str = "", folder: pathlib.Path = FOLDER) -> dict[str, np.ndarray]:
    """The stored arrays by name; of one case, those named "CASE/NAME", by NAME."""
    start = f"{case}/" if case else ""
    arrays = {}
    for path in _paths(name, folder):
        with np.load(path) as file:
            arrays |= {n.removeprefix(start): file[n] for n in file.files if n.startswith(start)}
    return arrays


def _paths(name: str, folder: pathlib.Path) -> list[pathlib.Path]:
    return [*folder.glob(f"{name}.npz"), *sorted(folder.glob(f"{name}_[0-9].npz"))]
