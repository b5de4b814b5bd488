"""Numbers for which the rules of claims on relative and rotary positions, padding, images and sound
must give each verdict; see `claims_absolute`.
"""

from experiments.claims.extrapolation import LONG, OWN, READ, SAVED, VISIBLE
from experiments.claims.heads import PLACES
from experiments.claims.images import GAIN, LARGE, LEARNED, MORE, SMALL
from experiments.claims.padding import ALL, ALONE, MASK_ON
from experiments.claims.padding import READ as QUANTITIES
from experiments.claims.relative import ABSOLUTE, RELATIVE, SEGMENTS
from experiments.claims.rotary import EXTENSIONS, KINDS, TIMES
from experiments.invariance.padding_leakage.leaks import MASKS, subset
from tests.experiments.claims.claims_absolute import HOLDS, NOT, WHEN


def moved(still=-6.0, shaken=-0.5, torn=-0.3):
    return {
        **{f"log10 of the change, {m}": still for m in RELATIVE},
        **{f"log10 of the change, {m}": shaken for m in ABSOLUTE},
        **{f"log10 of the change, {m}, half of it moved (control)": torn for m in RELATIVE},
    }


def few(share=0.1, worse=0.0, control=0.5):
    return {
        "parameters of the biases": 264,
        "parameters of the table": 264 / share,
        "parameters of the biases / of the table": share,
        "bits, clipped minus learned": worse,
        "bits, clipped with shuffled positions minus learned (control)": control,
    }


def recalled(lasts, without=0.13):
    """Recall up to so many segments later; a memory that leaks is seen in the control."""
    with_memory = {
        f"recall {k} segments later": 0.97 if k <= lasts else 0.12 for k in range(SEGMENTS)
    }
    control = "segments later, without memory (control)"
    return {**with_memory, f"recall 0 {control}": 0.97, f"recall 1 {control}": without}


def turned(exact=1e-10, ours=1e-6, product=0.03, coarse=3.0, control=4.0):
    return {
        **{f"change, float64, {kind}": exact for kind in KINDS},
        **{f"change, float32 with exact angles, {kind}": ours for kind in KINDS},
        "change, float32 product": product,
        "change, float32 product, shifts to 1000": product / 1000,
        "change, bfloat16 positions": coarse,
        "change, bfloat16 vectors": 0.01,
        "change, sinusoidal (control)": control,
    }


def stretched(plain, extended, shuffled=0.3, alibi=0.0):
    """Bits lost by the plain model and by yarn, at each length; others lose a bit everywhere."""
    lost = {f"bits lost at {k}x, {m}": 1.0 for k in TIMES for m in EXTENSIONS}
    return {
        **lost,
        **{f"bits lost at {k}x, rope": plain(k) for k in TIMES},
        **{f"bits lost at {k}x, yarn": extended(k) for k in TIMES},
        "bits lost at 4x, alibi (control)": alibi,
        "bits lost at 1x, shuffled positions (control)": shuffled,
    }


def peaks(one, whole, gain=0.5, control=0.12, slower=0.4):
    return {
        **{f"peak one period away, suited, {p}": one for p in PLACES},
        **{f"peak whole periods away, suited, {p}": whole for p in PLACES},
        "peak one period away, suited minus unsuited": gain,
        f"peak one period away, unsuited, {PLACES[0]}": slower,
        "peak one period away, suited, shuffled positions (control)": control,
    }


def bands(apart, matters, control=0.0):
    return {
        "slow minus fast heads, headwise": apart,
        "slow minus fast heads, rope (control)": control,
        "slow minus fast heads, headwise minus rope": apart - control,
        "cost of slow minus fast heads off, far minus near, headwise": matters,
        **{
            f"bits lost without {half} heads, {where}": 0.2
            for half in ("fast", "slow")
            for where in ("near", "far")
        },
    }


def far(spread=0.97, same=0.2, plain=0.5, extended=0.5, trained=0.0, control=0.3, saved=0.1):
    return {
        "spread of scores past 4096, unrelated": spread,
        "spread of scores past 4096, xpos (control)": control,
        "best score past 4096, equal": same,
        "bound past 4096": 0.4,
        f"bits lost at {LONG}, rope": plain,
        **{f"bits lost at {LONG}, {name}": extended for name in READ},
        OWN: trained,
        SAVED: saved,
    }


def span(lost=0.01, enough=64, trained_on=64, control=1.0):
    return {
        **{f"bits lost at {k}, alibi": lost for k in ("4x", "16x", f"{LONG} tokens")},
        "bits lost at 16x, sinusoidal (control)": control,
        "trained length": trained_on,
        **{f"bits lost with the last {w} tokens": 0.2 * (w < enough) for w in VISIBLE},
    }


def decayed(part=0.8, lost=0.2, control=1.2):
    return {
        **{f"part of RoPE's loss at {k}x": part for k in (4, 16)},
        **{f"bits lost at {k}x, xpos": lost for k in (4, 16)},
        **{f"bits lost at {k}x, rope": lost / part for k in (4, 16)},
        "loss at 16x without the decay, over that with it (control)": control,
    }


def leaked(free=0.4, masked=-9.0, attended=0.2, control=-9.0):
    return {
        "attention to padding, encoder": attended,
        **{f"log10 of the change, {kind}": free for kind in ("encoder", "decoder")},
        **{f"log10 of the change, {kind}, mask on": masked for kind in ("encoder", "decoder")},
        "log10 of the change, decoder padded on the right (control)": control,
    }


def relayed(passed=-0.4, masked=-9.0, control=-9.0):
    return {
        "log10 of the change, states of the padding": 0.0,
        "log10 of the change, outputs of the other text": passed,
        "log10 of the change, mask on": masked,
        **{f"log10 of the change, {name} (control)": control for name in ALONE},
    }


def guarded(zeroed=0.5, control=-5.7, rest=-9.0, **leaks):
    """`leaks`: what each mask lets in when it alone is off."""
    subsets = {m: subset([name != m for name in MASKS]) for m in MASKS}
    numbers = {
        f"log10 of the change, {change}/{q}, {masks}": rest
        for change in ("content", "amount")
        for q in QUANTITIES
        for masks in (ALL, *subsets.values())
    }
    for mask, quantities in leaks.items():
        for q in quantities:
            numbers[f"log10 of the change, content/{q}, {subsets[mask]}"] = 0.0
    numbers["log10 of the change, zeroed padding"] = zeroed
    numbers[f"log10 of the change, zeroed padding{MASK_ON}"] = control
    return numbers


def patches(small, large, more=0.1, share=0.95, learned=None):
    return {
        **{f"accuracy, {m}, at {k}": share for m in ("axial", "rope") for k in (SMALL, LARGE)},
        f"{GAIN} at {SMALL}": small,
        f"{GAIN} at {LARGE}": large,
        **({f"{LEARNED} at {SMALL}": learned} if learned else {}),
        **{f"{MORE} at {k} (control)": more for k in (SMALL, LARGE)},
    }


def aligned(same=0.0, other=5.0, timed=0.99, gain=0.5, more=0.2):
    return {
        "mrope minus rope, equal ids": same,
        "mrope minus rope, unequal ids (control)": other,
        "sounds aligned, ids from time": timed,
        "sounds aligned, ids by index (control)": timed - gain,
        "sounds aligned, time minus index": gain,
        "sounds aligned, plain RoPE on the same times": timed - more,
        "sounds aligned, M-RoPE minus plain RoPE on the same times": more,
    }


EACH = {"attention": QUANTITIES, "output": ("pooled",), "loss": ("loss", "gradient")}
LITTLE, MUCH = (lambda k: 0.01), (lambda k: 0.5)

RULES = {
    "rel-1": [(moved(), HOLDS), (moved(still=-3.0), NOT), (moved(shaken=-9.0), NOT),
              (moved(torn=-9.0), NOT)],
    "rel-2": [(few(), HOLDS), (few(share=0.5), NOT), (few(worse=0.1), NOT),
              (few(control=0.01), NOT), (few(worse=[-0.1, 0.1, 0.1]), NOT)],
    "rel-3": [(recalled(SEGMENTS), HOLDS), (recalled(2), WHEN), (recalled(0), NOT),
              (recalled(SEGMENTS, without=0.9), NOT)],
    "rope-1": [(turned(product=1e-6, coarse=1e-6), HOLDS), (turned(), WHEN),
               (turned(ours=0.1), NOT), (turned(exact=1e-3), NOT), (turned(control=0.0), NOT)],
    "rope-2": [(stretched(LITTLE, LITTLE), HOLDS), (stretched(MUCH, LITTLE), WHEN),
               (stretched(MUCH, MUCH), NOT), (stretched(LITTLE, LITTLE, shuffled=0.0), NOT),
               (stretched(LITTLE, LITTLE, alibi=0.2), NOT)],
    "rope-3": [(peaks(0.8, 0.9), HOLDS), (peaks(0.8, 0.9, slower=0.8), WHEN),
               (peaks(0.2, 0.9), NOT), (peaks(0.2, 0.3), NOT),
               (peaks(0.8, 0.9, gain=0.0), NOT), (peaks(0.8, 0.9, control=0.9), NOT)],
    "rope-4": [(bands(0.3, 0.1), HOLDS), (bands(0.3, 0.0), WHEN), (bands(0.0, 0.1), NOT),
               (bands(0.3, 0.1, control=0.3), NOT)],
    "rope-5": [(far(same=0.95, plain=0.0), HOLDS), (far(extended=0.0), WHEN), (far(), WHEN),
               (far(same=0.95, plain=0.0, saved=0.0), WHEN), (far(trained=0.5), NOT),
               (far(spread=0.5), NOT), (far(control=0.9), NOT)],
    "alibi-1": [(span(enough=256), HOLDS), (span(), WHEN), (span(lost=0.3), NOT),
                (span(control=0.0), NOT)],
    "xpos-1": [(decayed(lost=0.05), HOLDS), (decayed(), WHEN), (decayed(part=1.1), NOT),
               (decayed(control=1.0), NOT)],
    "pad-1": [(leaked(masked=-1.0), HOLDS), (leaked(), WHEN), (leaked(free=-9.0), NOT),
              (leaked(attended=0.0), NOT), (leaked(control=-1.0), NOT), (leaked(masked=-6.0), NOT)],
    "pad-2": [(relayed(masked=-1.0), HOLDS), (relayed(), WHEN), (relayed(passed=-9.0), NOT),
              (relayed(control=-6.0), NOT), (relayed(masked=-6.0), NOT)],
    "pad-3": [(guarded(**{**EACH, "output": QUANTITIES}), HOLDS), (guarded(**EACH), WHEN),
              (guarded(**{**EACH, "loss": ()}), WHEN), (guarded(zeroed=-9.0, **EACH), NOT),
              (guarded(control=0.5, **EACH), NOT), (guarded(rest=-1.0, **EACH), NOT)],
    "img-1": [(patches(0.1, 0.1), HOLDS), (patches(0.0, 0.1), WHEN),
              (patches(0.1, 0.1, learned=-0.1), WHEN), (patches(0.0, 0.0), NOT),
              (patches(0.1, 0.1, more=0.0), NOT), (patches(0.1, 0.1, share=0.8), NOT)],
    "mm-1": [(aligned(), HOLDS), (aligned(more=0.0), WHEN), (aligned(same=1e-7), NOT),
             (aligned(other=0.0), NOT), (aligned(timed=0.6, gain=0.1), NOT),
             (aligned(gain=0.1), NOT)],
}  # fmt: skip
