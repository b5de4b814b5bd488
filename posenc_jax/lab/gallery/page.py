"""The page of all cards: one HTML file without external resources."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card, facts, option_lines, summary
from posenc_jax.lab.gallery import measure, trained
from posenc_jax.lab.gallery.option_grid import ABSENT
from posenc_jax.lab.report.webpage import folded, html_page, inline, pairs

FAMILIES = {  # in the order of all pages; the first method of the first is rope
    "rotary": "Rotary",
    "bias": "Bias",
    "content": "By content",
    "by_layer": "By layer",
    "input": "At the input",
    "positions": "Positions shown",
    "none": "No positions",
}
OWN_CSS = Path(__file__).with_name("page.css").read_text("utf-8")


def html(drawn: Mapping[str, str]) -> str:
    """Returns the page of these methods; `drawn` is {name: `figure` of the card}."""
    by_family = families(drawn)
    articles = (_article(card(name), drawn[name]) for names in by_family.values() for name in names)
    rules, articles = _classed("".join(articles))
    title = f"Positional encodings: {len(drawn)} cards"
    body = f"""<header>
<h1>{title}</h1>
{"".join(f"<p>{escape(line)}</p>" for line in how_to_read())}
</header>
<nav aria-label="methods">{"".join(_links(kind, names) for kind, names in by_family.items())}</nav>
<main>
{articles}
</main>"""
    return html_page(title, body, allowed="img-src data:", style=OWN_CSS + rules)


def figure(name: str, svg: str) -> str:
    """Returns a card's SVG as an element of the page."""
    return f"<figure>{inline(name, svg, f'the card of {name}')}</figure>"


def families(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns {kind: methods of it} for the kinds that occur, in the order of FAMILIES."""
    names = list(names)
    by_kind = {kind: [name for name in names if card(name).kind == kind] for kind in FAMILIES}
    return {kind: members for kind, members in by_kind.items() if members}


def _classed(body: str) -> tuple[str, str]:
    """Returns CSS rules for all style attributes, and the body with classes in place of the
    attributes.

    The page is then two thirds as large.
    """
    styles = list(dict.fromkeys(re.findall(r' style="([^"]*)"', body)))
    number = {style: i for i, style in enumerate(styles)}
    body = re.sub(r' style="([^"]*)"', lambda m: f' class="s{number[m.group(1)]}"', body)
    return "".join(f".s{i} {{ {style} }}\n" for i, style in enumerate(styles)), body


def how_to_read() -> list[str]:
    """Returns the paragraphs that explain all cards."""
    return [
        "All methods are measured in one setting. Tokens are vectors of mean 0 and variance 1. The "
        "projections of queries and keys are identities. A head has "
        f"{measure.HEAD} channels ({measure.HEADS} heads; one head for methods at the input).",
        "The parameters of a method that learns are those after training: "
        f"{trained.STEPS} steps of {trained.BATCH} windows of {trained.LENGTH} bytes of the "
        "standard library's source, in a decoder of one layer that predicts the next byte. Methods "
        f"of two axes are trained on images of digits with {trained.PATCHES} x {trained.PATCHES} "
        "patches, in an encoder. It is one short training from a fixed seed. Parameters of "
        "positions that did not occur in it stay as they were drawn. Where the parameters have the "
        f"same shapes in heads of {trained.THIN} channels, the trained heads are so narrow.",
        "The expected score is the attention logit between two tokens of the same content, the "
        "mean over contents, by distance. Its spread is over all absolute positions. The dotted "
        f"line at {measure.HEAD**0.5:g} is the score without positions. What position adds is the "
        "logit at random content minus the logit of the content alone.",
        "A heatmap of 40,000 positions has fewer pixels than positions. One heatmap shows the mean "
        "over the positions of each pixel, the next one their range. So a wave shorter than a "
        "pixel has a mean near zero and a large range. With one position for each pixel it would "
        "look like a long wave, which does not exist.",
    ]


def _links(kind: str, names: Iterable[str]) -> str:
    """The links to the methods of one family."""
    links = "".join(f'<a href="#{name}">{escape(name)}</a>' for name in names)
    return f"<h2>{escape(FAMILIES[kind])}</h2>{links}"


def _article(method: Card, figure: str) -> str:
    """The article of one method."""
    options = "".join(f"<li>{escape(line)}</li>" for line in option_lines(method))
    explorer = f' <a href="../explorer.html#{method.name}">In the explorer</a>.'
    return (
        f'<article id="{method.name}"><h2>{escape(method.name)}</h2>'
        f"<p>{_coded(escape(summary(method)))}{'' if method.name in ABSENT else explorer}</p>"
        f"{_coded(_cited(pairs(facts(method).items())))}"
        f"{figure}"
        f"{folded('Options', f'<ul>{_coded(options)}</ul>') if options else ''}</article>\n"
    )


def _coded(text: str) -> str:
    """Returns HTML with text in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _cited(text: str) -> str:
    """Returns HTML with its arXiv ids as links."""
    link = r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>'
    return re.sub(r"(?:arXiv )?\b(\d{4}\.\d{5})\b", link, text)
