"""Figures of lessons: drawn by matplotlib, put into the page as SVG that takes the page's own ink, in light and in dark."""

import html
import re

INK = "#010203"             # stands for the page's text colour
LINES = ("#2f7fd0", "#d2691e", "#2e9960", "#b452cd", "#8a7a1f", "#c2456b")      # at least 3:1 on white and on the dark page

SETUP = f"""
%matplotlib inline
import matplotlib as _m
import matplotlib_inline.backend_inline as _b
_b.set_matplotlib_formats("svg", bbox_inches="tight", metadata={{"Date": None}})
_m.rcParams.update({{"svg.hashsalt": "skipway", "savefig.transparent": True, "svg.fonttype": "path", "figure.figsize": (7, 3.6),
    "figure.facecolor": "none", "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.prop_cycle": _m.cycler(color={list(LINES)!r}), "legend.frameon": False,
    **{{k: "{INK}" for k in ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color", "grid.color")}},
    "grid.alpha": 0.2}})
import torch as _t
_t.set_num_threads(1)
del _m, _b, _t
"""


def words(svg: str) -> str:
    """What is written in the figure, but for numbers: a name where the lesson gives none. Matplotlib leaves each text in a comment."""
    found = [html.unescape(t).strip() for t in re.findall(r"<!--(.*?)-->", svg, re.S)]
    told = list(dict.fromkeys(t for t in found if re.search(r"[A-Za-z]{2}", t)))
    return "Figure: " + "; ".join(told) if told else ""


def inline(svg: str, alt: str, prefix: str) -> str:
    """The drawing as an element of the page: named for a screen reader, ids of its own, the page's ink."""
    text = svg[svg.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S).replace(INK, "currentColor")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(xlink:href="#|href="#|url\(#)', rf"\g<1>{prefix}-", text).replace(f'xlink:href="#{prefix}-', f'href="#{prefix}-')
    width = re.search(r'\bwidth="([\d.]+)pt"', text)
    text = re.sub(r'\b(width|height)="[\d.]+pt"', "", text, count=2)
    style = f' style="max-width: {float(width[1]) * 4 / 3:.0f}px"' if width else ""
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt, quote=True)}"{style}', 1)
