"""Sets the plain formula of a card as mathematics, in HTML that needs no script."""

import re
from html import escape

GREEK = {"alpha": "α", "beta": "β", "delta": "δ", "theta": "θ", "pi": "π", "psi": "ψ", "zeta": "ζ"}
SUBSCRIPTED = ("row", "column", *GREEK.values(), "∑")  # besides single letters
SIGNS = {" * ": " · ", "&lt;=": "≤", "&gt;=": "≥", "-&gt;": "→", "-inf": "−∞", " .. ": " … ",
         " . ": " · "}  # fmt: skip


def mathematics(formula: str) -> str:
    """Returns a formula with Greek letters, subscripts, superscripts and roots, as HTML."""
    text = re.sub(r"`(\w+)`", r"\1", escape(formula, quote=False))
    for plain, sign in SIGNS.items():
        text = text.replace(plain, sign)
    for name, letter in GREEK.items():
        text = re.sub(rf"\b{name}(?=\b|_)", letter, text)
    text = re.sub(r"\bsum_", "∑_", text)
    text = re.sub(r"\bsqrt(?=[(|])", "√", text)
    text = re.sub(r"(?<=[A-Za-z\])])\.(?=[A-Za-z(\[])", "·", text)
    text = _raised(text)
    base = rf"(?<![A-Za-z])([A-Za-z]|{'|'.join(SUBSCRIPTED)})"
    text = re.sub(rf"{base}_(\w+(?:[+-]\d)?)(?![\w])", r"\1<sub>\2</sub>", text)
    return re.sub(r"(?<=[\w(\[ ])-(?=[\d(]| )|(?<= )-(?=[a-z])|(?<=<sup>)-", "−", text)


def _raised(text: str) -> str:
    """Returns the text with x^y and x^(y) as superscripts; brackets may be nested."""
    while (at := text.find("^")) >= 0:
        end = _end(text, at + 1)
        power = text[at + 1 : end]
        power = power[1:-1] if power.startswith("(") else power
        text = f"{text[:at]}<sup>{power}</sup>{text[end:]}"
    return text


def _end(text: str, start: int) -> int:
    """Returns where the power that begins at `start` ends."""
    if text[start] != "(":
        match = re.compile(r"-?\w+(\[\w+\])?").match(text, start)
        return match.end() if match else start + 1
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError(f"formula: a bracket is not closed in {text!r}")
