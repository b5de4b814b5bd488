"""TPU slices of Google Cloud by name: how many chips each has, and which have a single host."""

from typing import NamedTuple

from posenc_jax.options import choices_for


class Generation(NamedTuple):
    """A generation of TPUs.

    sizes: the numbers in the names of its slices, such as 8 of v4-8.
    per_chip: how many of that number are one chip: the names of older generations count cores.
    host_chips: chips of the largest slice that has a single host.
    """

    sizes: tuple[int, ...]
    per_chip: int
    host_chips: int


_POWERS = tuple(2**k for k in range(3, 12))
_CHIPS = (1, 4, 8, 16, 32, 64, 128, 256)
# Sizes and hosts: cloud.google.com/tpu/docs/v5e, /v6e, /v5p and /v4.
GENERATIONS = {
    "v2": Generation((8, 32, 128, 256, 512), 2, 4),
    "v3": Generation((8, 32, 64, 128, 256, 512, 1024, 2048), 2, 4),
    "v4": Generation(_POWERS, 2, 4),
    "v5litepod": Generation(_CHIPS, 1, 8),
    "v5p": Generation(_POWERS, 2, 4),
    "v6e": Generation(_CHIPS, 1, 8),
}
CHIPS = {
    f"{name}-{size}": size // generation.per_chip
    for name, generation in GENERATIONS.items()
    for size in generation.sizes
}


class Slice(NamedTuple):
    """A TPU slice on one host: SkyPilot's name of it, and its chips."""

    accelerator: str
    chips: int


def on_one_host(tpu: str) -> Slice:
    """Returns the slice of a name: "tpu-v6e-8" for "v6e-8", "tpu-v5litepod-4" for "v5e-4".

    Raises:
      ValueError: there is no such TPU, or it has several hosts. Each host mounts its own copy of
        the bucket, but the hosts of a run must share one folder.
    """
    name = tpu.removeprefix("tpu-").replace("v5e", "v5litepod")
    generation = name.split("-")[0]
    single_host = [
        name
        for name, chips in CHIPS.items()
        if name.startswith(f"{generation}-") and chips <= GENERATIONS[generation].host_chips
    ]
    if name not in CHIPS:
        choices = choices_for(name, single_host or list(GENERATIONS))
        raise ValueError(f"--tpu: no TPU {tpu!r}{choices}")
    if name not in single_host:
        raise ValueError(f"--tpu: {tpu} has several hosts, which do not see one folder of a run; "
                         f"choices with one host: {', '.join(single_host)}")  # fmt: skip
    return Slice(f"tpu-{name}", CHIPS[name])


def summary(tpu: str, rows: int, points: int) -> str:
    """Returns one line: the machines that a sweep asks for, and a warning if chips would be idle.

    Args:
      rows: the most rows that a run of the sweep computes at once (seeds times batch).
      points: the number of jobs; each gets its own slice.
    """
    chips = on_one_host(tpu).chips
    line = f"{tpu}: {points} jobs, each on 1 host with {chips} chip{'s' * (chips > 1)}"
    if chips > rows:
        line += f"; warning: a step has {rows} rows, so {chips - rows} chips are idle"
    return line
