"""Prepares a TFDS set once, for runs to read without TensorFlow: `--config.task.name=tfds:NAME`.

    python scripts/prepare_data.py tiny_shakespeare
    python scripts/prepare_data.py wiki40b/en
    python scripts/prepare_data.py posenc_jax/copy    # our own: no download, no TensorFlow
    python scripts/prepare_data.py lm1b --dry-run     # only says what it would take

It first says what this takes: how much to download, and where to. Public sets need TensorFlow and a
network, for this command only: pip install '.[prepare]'. Sets are written as array_record to the
folder in TFDS_DATA_DIR, or ~/tensorflow_datasets. Exit status 2: it cannot, and one line says why.
"""

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.tasks import tfds_folder
from posenc_jax.options import choices_for

EXTRA = "pip install '.[prepare]'"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if the set cannot be prepared."""
    parser = Flags((__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="as in tfds:NAME")
    parser.add_argument("--dry-run", action="store_true", help="say what it takes, and stop")
    flags = parser.parse_args(arguments)
    try:
        prepare(flags.name, flags.dry_run)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def prepare(name: str, dry_run: bool) -> None:
    """Prepares the set, unless it is there. ValueError: one line says why it cannot be."""
    tfds_folder.check_name(name)
    if tfds_folder.is_there(name):
        print(f"{name} is prepared already, in {tfds_folder.data_dir()}")
        return
    tfds_folder.check_known(name)
    builder = _builder(name)
    for line in takes(builder):
        print(line, flush=True)
    if dry_run:
        return
    if not _is_ours(name) and importlib.util.find_spec("tensorflow") is None:
        raise ValueError(f"{name}: preparing a public set needs TensorFlow, once: {EXTRA}")
    builder.download_and_prepare()
    print(f"prepared; read it with --config.task.name=tfds:{name}")


def takes(builder: Any) -> list[str]:
    """Returns lines that say what preparing takes, as far as TFDS knows beforehand."""
    sizes = [info.size for info in (builder.url_infos or {}).values()]
    size = f"{sum(sizes) / 2**20:,.1f} MiB in {len(sizes)} files" if sizes else "size not known"
    if _is_ours(builder.name):
        size = "nothing"
    free = shutil.disk_usage(next(p for p in Path(builder.data_dir).parents if p.exists())).free
    return [
        f"set:      {builder.name} {builder.version}",
        f"download: {size}",
        f"to:       {builder.data_dir} ({free / 2**30:,.1f} GiB free)",
        "disk:     at least the download, and about as much again while it is prepared",
    ]


def _builder(name: str) -> Any:
    """Returns the builder of a set. ValueError: TFDS has no such config or version of it."""
    base, _, config = name.partition(":")[0].partition("/")
    import tensorflow_datasets as tfds

    if _is_ours(name):
        import posenc_jax.lab.tasks.tfds_builder  # noqa: F401 - registers our sets
    elif base not in tfds.list_builders(with_community_datasets=False):
        raise ValueError(f"{name}: TFDS shows this set only where TensorFlow is: {EXTRA}")
    configs = list(tfds.builder_cls(base).builder_configs)
    if config and config not in configs:
        raise ValueError(f"{name}: no config {config!r}{choices_for(config, configs)}")
    try:
        return tfds.builder(name, data_dir=tfds_folder.data_dir(), file_format=tfds_folder.READABLE)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"{name}: {' '.join(str(error).split())}") from None


def _is_ours(name: str) -> bool:
    return name.partition("/")[0] == "posenc_jax"


if __name__ == "__main__":
    sys.exit(main())
