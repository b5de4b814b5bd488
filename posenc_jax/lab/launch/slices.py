"""TPU slices of Google Cloud: their names, hosts and chips, and what an hour of one costs."""

from typing import NamedTuple

from posenc_jax.options import choices_for


class Kind(NamedTuple):
    """A generation of TPUs.

    sizes: the numbers in the names of its slices, such as 8 of v4-8.
    per_chip: how many of that number are one chip: cores, or chips themselves.
    host: chips of the largest slice on one host.
    price, spot: US dollars for a chip and an hour, on demand and if it may be taken away.
    """

    sizes: tuple[int, ...]
    per_chip: int
    host: int
    price: float
    spot: float


_POWERS = tuple(2**k for k in range(3, 12))
_CHIPS = (1, 4, 8, 16, 32, 64, 128, 256)
# List prices in us-central1 (v4: us-central2), of which discounts are not taken off. Spot prices
# change every month. Source: SkyPilot's catalogue of Google Cloud, file catalogs/v8/gcp/vms.csv of
# github.com/skypilot-org/skypilot-catalog at commit 006059e. Hosts: cloud.google.com/tpu/docs/v5e,
# /v6e, /v5p and /v4.
PRICES_READ = "November 2026"
MEMORY = 16e9  # bytes of a chip of the generations with the least
SMALL = 0.01  # of one chip's memory: a training that needs no more is slow elsewhere
KINDS = {
    "v2": Kind((8, 32, 128, 256, 512), 2, 4, 1.125, 0.3375),
    "v3": Kind((8, 32, 64, 128, 256, 512, 1024, 2048), 2, 4, 2.0, 0.51),
    "v4": Kind(_POWERS, 2, 4, 3.22, 0.9215),
    "v5litepod": Kind(_CHIPS, 1, 8, 1.2, 0.2449),
    "v5p": Kind(_POWERS, 2, 4, 4.2, 0.8357),
    "v6e": Kind(_CHIPS, 1, 8, 2.7, 0.5442),
}
TPUS = {  # chips of each slice
    f"{name}-{size}": size // kind.per_chip for name, kind in KINDS.items() for size in kind.sizes
}


class Slice(NamedTuple):
    """A slice of TPUs on one host: SkyPilot's name of it, its chips and dollars for an hour."""

    accelerator: str
    chips: int
    price: float
    spot: float


def on_one_host(tpu: str) -> Slice:
    """Returns the slice: of "v6e-8" "tpu-v6e-8", of "v5e-4" "tpu-v5litepod-4".

    Raises:
      ValueError: no such TPU, or it has several hosts, which do not see one folder of a run: each
        has a copy of the bucket of its own. One line with the choices.
    """
    name, fits = _name(tpu), _of_one_host(tpu)
    if name not in TPUS:
        raise ValueError(f"--tpu: no TPU {tpu!r}{choices_for(name, fits or list(KINDS))}")
    if name not in fits:
        raise ValueError(f"--tpu: {tpu} has several hosts, which do not see one folder of a run; "
                         f"choices with one host: {', '.join(fits)}")  # fmt: skip
    kind, chips = KINDS[name.split("-")[0]], TPUS[name]
    return Slice(f"tpu-{name}", chips, chips * kind.price, chips * kind.spot)


def cost(tpu: str, rows: int, points: int, spot: bool, state: float) -> str:
    """Returns what a sweep runs on and what an hour costs, and a warning if chips stay idle or the
    slice is far larger than the model.

    Args:
      tpu: as of `on_one_host`.
      rows: the most rows that a run of the sweep computes at once: seeds times batch.
      points: of the sweep; each is a job with a slice of its own.
      spot: whether the slices may be taken away.
      state: the most bytes that a run's weights, gradients and optimizer take.
    """
    one = on_one_host(tpu)
    price = one.spot if spot else one.price
    told = (
        f"{tpu}: 1 host with {one.chips} chip{'s' * (one.chips > 1)} for each point; about "
        f"${price:.2f} an hour for one, ${points * price:.2f} if all {points} run at once ("
        f"{'spot' if spot else 'on-demand'} list price, read {PRICES_READ}; SkyPilot shows its own)"
    )
    if one.chips > rows:
        idle = one.chips - rows
        return f"{told}; warning: a step has {rows} rows, so that {idle} chips stay idle"
    least = _of_one_host(tpu)[0]
    if state < SMALL * MEMORY and TPUS[least] < one.chips:
        return (f"{told}; warning: the training's state of about {state / 1e6:.0f} MB fills less "
                f"than {SMALL:.0%} of one chip's memory; {least} costs less")  # fmt: skip
    return told


def _of_one_host(tpu: str) -> list[str]:
    """Returns the slices of the TPU's generation that have one host, the smallest first."""
    generation = _name(tpu).split("-")[0]
    return [name for name, chips in TPUS.items()
            if name.startswith(f"{generation}-") and chips <= KINDS[generation].host]  # fmt: skip


def _name(tpu: str) -> str:
    return tpu.removeprefix("tpu-").replace("v5e", "v5litepod")
