"""The drawing of each scheme's wiring: four sublayers of attention and feed-forward under that rule, as skipway recovers them."""

import re

import torch

import skipway
from skipway import nn, schemes
from skipway.report import svg

DIM = 16


def placed(markdown: str, parts: dict[str, str]) -> str:
    """docs/schemes.md with a place for a drawing in each section; the drawings go to `parts`."""
    parts["scheme-style"] = f"<style>{svg.style(dark=False)}</style>"
    names = set(schemes.names())

    def add(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            return match[0]
        parts[f"scheme-{name}"] = (f'<details class="scheme-drawing"><summary>The wiring that <code>skipway draw</code> recovers</summary>'
                                   f'<div class="drawing" data-search-exclude tabindex="0" role="region" aria-label="Drawing of {name}">'
                                   f"{drawing(name)}</div></details>")
        return f'{match[0]}\n<div data-output="scheme-{name}"></div>\n'

    text = re.sub(r"^## (\w+)\n(?:.*?)^Options:[^\n]*\n", add, markdown, flags=re.M | re.S)
    return text.replace("\n## ", '\n<div data-output="scheme-style"></div>\n\n## ', 1)


def drawing(name: str) -> str:
    """One <svg>. Two blocks: a scheme that needs a whole stack gets one."""
    torch.manual_seed(0)
    model = nn.Encoder(DIM, heads=2, blocks=2, scheme=name)
    wiring = skipway.trace(model, torch.zeros(1, 4, DIM)).to_dict()
    return svg.drawing(wiring, legend=False, prefix=f"s-{name}")
