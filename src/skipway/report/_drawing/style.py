"""Colours and type of the drawing. Every rule names a plain colour first, for viewers that know no custom properties."""

# Name -> light, dark.
COLORS = {
    "paper": ("#ffffff", "#12171d"),
    "ink": ("#1f2a35", "#e6ebf0"),
    "quiet": ("#5c6975", "#9aa7b4"),
    "line": ("#d5dce3", "#323d49"),             # frames
    "stream": ("#1f6fb5", "#63aef0"),
    "branch": ("#74818e", "#8795a3"),
    "edge": ("#b4bfca", "#46535f"),         # of boxes and marks
    "box": ("#f5f8fa", "#1b232c"),
    "norm": ("#fbf3dc", "#35301c"),
    "error": ("#c4281c", "#ff8075"),
    "warning": ("#9a5b00", "#f0b04d"),
    "note": ("#4f6272", "#a3b5c4"),
    "attention": ("#4c86c6", "#5b94d4"),
    "ffn": ("#4f9d76", "#58ad84"),
    "moe": ("#c08a2e", "#cf9a3f"),
    "conv": ("#8a74bd", "#9d88cf"),
    "ssm": ("#3d9a9a", "#4fb0b0"),
    "cross": ("#c06a92", "#d17fa5"),
    "other": ("#8a949e", "#8a949e"),
}
SANS = 'ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace'

# Selector -> (property, colour) pairs and plain declarations.
RULES: dict[str, list[tuple[str, str]]] = {
    ".sw-paper": [("fill", "paper")],
    ".sw-text": [("fill", "ink")],
    ".sw-mono,.sw-quiet": [("fill", "quiet")],
    ".sw-stream": [("stroke", "stream")],
    ".sw-dot": [("fill", "stream")],
    ".sw-branch": [("stroke", "branch")],
    ".sw-tip": [("fill", "branch")],
    ".sw-halo": [("stroke", "paper")],
    ".sw-frame": [("fill", "paper"), ("stroke", "line")],
    ".sw-box": [("fill", "box"), ("stroke", "edge")],
    ".sw-norm": [("fill", "norm"), ("stroke", "edge")],
    ".sw-mark": [("fill", "paper"), ("stroke", "branch")],
    ".sw-join": [("fill", "paper"), ("stroke", "stream")],
    ".sw-node": [("fill", "paper"), ("stroke", "stream")],
    ".sw-tag": [("fill", "ink")],
    ".sw-tag-text": [("fill", "paper")],
    **{f".sw-badge.sw-{s}": [("fill", s)] for s in ("error", "warning", "note")},
    **{f".sw-at-{s}": [("stroke", s)] for s in ("error", "warning", "note")},
    ".sw-k-self_attention": [("fill", "attention")], ".sw-k-cross_attention": [("fill", "cross")], ".sw-k-ffn": [("fill", "ffn")],
    ".sw-k-moe": [("fill", "moe")], ".sw-k-conv": [("fill", "conv")], ".sw-k-ssm": [("fill", "ssm")], ".sw-k-other": [("fill", "other")],
}
SHAPES = (
    f".sw-drawing text{{font-family:{SANS};font-size:12px}}"
    ".sw-drawing{display:block;max-width:none}"
    f".sw-drawing .sw-mono{{font-family:{MONO};font-size:10.5px}}.sw-drawing .sw-quiet{{font-size:11px}}"
    ".sw-drawing .sw-name{font-size:14px;font-weight:600}.sw-drawing .sw-kind{font-size:12.5px;font-weight:600}"
    ".sw-drawing .sw-title{font-size:17px;font-weight:600}"
    ".sw-drawing .sw-said{font-size:11.5px}.sw-drawing .sw-small{font-size:10.5px}"
    ".sw-drawing .sw-mid{text-anchor:middle}.sw-drawing .sw-end{text-anchor:end}"
    ".sw-drawing .sw-tag-text{font-size:11px;font-weight:600;text-anchor:middle}"
    ".sw-stream{fill:none;stroke-width:3}.sw-lane{stroke-width:2}.sw-skip{stroke-width:2}.sw-memory{stroke-width:2;stroke-dasharray:1 4;"
    "stroke-linecap:round}"
    ".sw-branch{fill:none;stroke-width:1.5}.sw-halo{fill:none;stroke-width:8}.sw-frame{stroke-width:1}.sw-box,.sw-norm,.sw-mark{stroke-width:1}"
    ".sw-join,.sw-node{stroke-width:2}.sw-drop{stroke-dasharray:3 2}.sw-group{stroke-dasharray:5 4}"
    ".sw-at-error,.sw-at-warning,.sw-at-note{stroke-width:2}.sw-at-error.sw-box,.sw-at-error.sw-node{stroke-width:2.5}"
)


def style(dark: bool) -> str:
    """The style sheet. dark: it follows prefers-color-scheme."""
    rules = "".join(f"{selector}{{{''.join(_declared(*pair) for pair in pairs)}}}" for selector, pairs in RULES.items())
    if not dark:
        return _fallbacks(0) + SHAPES + rules
    return f"{_fallbacks(0)}@media(prefers-color-scheme:dark){{{_fallbacks(1)}}}{SHAPES}{rules}"


def _declared(name: str, color: str) -> str:
    return f"{name}:{COLORS[color][0]};{name}:var(--sw_{color});"


def _fallbacks(which: int) -> str:
    """The colours in use: what the page sets, else ours."""
    return f".sw-drawing{{{''.join(f'--sw_{name}:var(--sw-{name},{pair[which]});' for name, pair in COLORS.items())}}}"
