"""Terms that several definitions share: products, tables of rows, sines, rotary angles."""

from collections.abc import Callable

import numpy as np


def dots(q_THC, k_THC):
    """q.k / sqrt(C), [H, T, T]."""
    return np.einsum("qhc,khc->hqk", q_THC, k_THC) / np.sqrt(q_THC.shape[-1])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_pair(score, q_THC):
    """Logits [H, T, T] with the entries score(h, i, j)."""
    time, heads, _ = q_THC.shape
    s_HTT = np.zeros((heads, time, time))
    for h, i, j in np.ndindex(s_HTT.shape):
        s_HTT[h, i, j] = score(h, i, j)
    return s_HTT


def by_offset(value: Callable) -> Callable:
    """An entry of SCORES: q.k / sqrt(C) + value(o, params, D, h, heads), D = i - j, in head h."""

    def scores(o, params, q_THC, k_THC, pos_T, n):
        def score(h, i, j):
            dot = np.dot(q_THC[i, h], k_THC[j, h]) / np.sqrt(q_THC.shape[-1])
            return dot + value(o, params, pos_T[i] - pos_T[j], h, q_THC.shape[1])

        return by_pair(score, q_THC)

    return scores


def clipped_row(offset, distance, ahead=None):
    """The row, 0 to distance + ahead, of a table over clipped offsets; ahead: None: `distance`."""
    ahead = distance if ahead is None else ahead
    return int(min(max(offset, -ahead), distance)) + ahead


# At the model's input.


def embeds_by(code: Callable) -> Callable:
    """An entry of EMBEDS: code(o, params, pos_T, n, width) -> [T, W].

    The code's own width is the option `width`, or the model's.
    """

    def embeds(o, params, x_TD, pos_T, n):
        width = getattr(o, "width", None) or x_TD.shape[1]
        code_TW = code(o, params, pos_T, n, width)
        if o.how == "concat":
            mix = np.concatenate([params["x"], params["code"]])
            return np.concatenate([x_TD, code_TW], axis=1) @ mix
        return x_TD + (code_TW @ params["code"] if "code" in params else code_TW)

    return embeds


def within(length, beyond, t, n):
    """The row of a table of `length` rows for position t of n tokens, a float; NaN if refused."""
    if beyond == "error" and not 0 <= t < length:
        return np.nan
    if beyond == "interpolate" and n > length:
        t = t * (length - 1) / (n - 1)
    return min(max(t, 0), length - 1)


def table_rows(table_LW, beyond, pos_T, n):
    """The rows of a table at positions; a position with a fraction reads between two rows."""
    length = len(table_LW)

    def row(t):
        if np.isnan(t):
            return np.full(table_LW.shape[1], np.nan)
        low, high = table_LW[int(t)], table_LW[min(int(t) + 1, length - 1)]
        return (1 - t % 1) * low + t % 1 * high

    return np.stack([row(within(length, beyond, t, n)) for t in pos_T])


def embeds_by_rows(table: Callable) -> Callable:
    """An entry of EMBEDS that reads the rows of table(o, params), [length, W]."""
    rows = lambda o, params, pos_T, n, width: table_rows(table(o, params), o.beyond, pos_T, n)
    return embeds_by(rows)


def sine_code(pos_T, width, base, pairing, spacing, first="sine"):
    """The sinusoidal code of the paper (or of tensor2tensor), one entry at a time."""
    code_TW, pairs = np.zeros((len(pos_T), width)), width // 2
    for i, t in enumerate(pos_T):
        for k in range(pairs):
            exponent = 2 * k / width if spacing == "paper" else k / max(pairs - 1, 1)
            sin_at, cos_at = (2 * k, 2 * k + 1) if pairing == "interleaved" else (k, pairs + k)
            if first == "cosine":
                sin_at, cos_at = cos_at, sin_at
            code_TW[i, sin_at] = np.sin(t / base**exponent)
            code_TW[i, cos_at] = np.cos(t / base**exponent)
    return code_TW


# Rotary.


def turned_scores(q_THC, k_THC, angle_QKHF, pairing, gain_QKHF: float | np.ndarray = 1.0):
    """Re sum_f q_f conj(k_f) gain_f e^(i angle_f) / sqrt(C), [H, Q, K].

    Channels after the last pair add their plain product.
    """
    width = 2 * angle_QKHF.shape[-1]
    real, imaginary = {
        "half": (slice(0, width // 2), slice(width // 2, width)),
        "interleaved": (slice(0, width, 2), slice(1, width, 2)),
    }[pairing]
    q, k = (x[..., real] + 1j * x[..., imaginary] for x in (q_THC, k_THC))
    power_QKHF = gain_QKHF * np.exp(1j * angle_QKHF)
    power_QKHF = np.broadcast_to(power_QKHF, (len(q), *k.shape))
    turned_HQK = np.einsum("qhf,khf,qkhf->hqk", q, k.conj(), power_QKHF).real
    plain_HQK = np.einsum("qhc,khc->hqk", q_THC[..., width:], k_THC[..., width:])
    return (turned_HQK + plain_HQK) / np.sqrt(q_THC.shape[-1])


def offsets(pos_T):
    """D = i - j, [Q, K, 1, 1]."""
    pos_T = np.asarray(pos_T, np.float64)
    return (pos_T[:, None] - pos_T[None, :])[:, :, None, None]


def powers(base, width):
    """theta_k = base^(-2k / width), [F]."""
    return np.array([float(base) ** (-2 * k / width) for k in range(width // 2)])


def rotary_scores(theta: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """An entry of SCORES for a rotary method with frequencies theta(o, head width, n), [F]."""

    def scores(o, params, q_THC, k_THC, pos_T, n):
        angle_QKHF = offsets(pos_T) * theta(o, q_THC.shape[-1], n)
        return turned_scores(q_THC, k_THC, angle_QKHF, o.pairing)

    return scores


def ramped(theta_F, factor, length, slow, fast):
    """The frequencies theta / factor for pairs of up to `slow` turns in `length`, theta from `fast`
    turns on.

    Between them, linear in the number of turns.
    """
    wavelength_F = 2 * np.pi / theta_F
    gamma_F = np.clip((length / wavelength_F - slow) / (fast - slow), 0, 1)
    return (1 - gamma_F) * theta_F / factor + gamma_F * theta_F
