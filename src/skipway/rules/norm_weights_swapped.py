"""norm-weights-swapped: a norm holds the weights of another norm of the reference model or state dict.

What it does
    Compares each norm with the norm of `reference` in its place: the one that stands at the same site and on the same side of
    the same branch where the reference is a model, else the one of the same name. Reports a norm that differs from it and
    equals another norm of the reference in every value.
Why it matters
    Norms of one width fit everywhere, so a checkpoint that is converted with a wrong map of names loads without a word: what
    was trained in front of the attention stands in front of the FFN. Outputs look sensible and every score is worse. Blocks
    with four norms (Gemma 2, OLMo 2, sandwich norms) are where it happens, since `post_attention_layernorm` means another
    place in each family.
Fires on
    `norm1` and `norm2` of a block exchanged against the reference; all norms shifted by one layer; the final norm loaded into
    a block; a forward that uses the norms of equal names in exchanged places.
Quiet on
    No reference. Norms that differ from every norm of the reference (a fine-tuned model). Norms as they are made, all ones and
    zeros, which tell nothing. A port with other names whose norms stand in the right places. Casts to another dtype.
What to do
    Correct the map of names for this norm, by the place that it has in the forward.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring import Stream, Wiring
from skipway.wiring import operations as ops

CODE = "SKW208"
STAGE = "values"
SEVERITY = "error"

PARTS = {"weight": "gain", "gamma": "gain", "scale": "gain", "g": "gain", "bias": "shift", "beta": "shift", "b": "shift",
         "running_mean": "mean", "running_var": "variance"}
FRESH = {"gain": (0.0, 1.0), "shift": (0.0,), "mean": (0.0,), "variance": (1.0,)}
NORM = re.compile(r"norm|(^|[._])(ln|bn|gn|rms)([._\d]|$)", re.IGNORECASE)

Norms = dict[str, dict[str, Tensor]]            # module path -> part -> value


def check(facts: Facts) -> Iterator[Hit]:
    if facts.reference_state is None:
        return
    state = {name: p.detach() for name, p in (*facts.record.model.named_parameters(remove_duplicate=False),
                                              *facts.record.model.named_buffers(remove_duplicate=False))}
    known = set().union(*[_norm_modules(w) | _loose(w) for w in (facts.wiring, facts.reference) if w is not None])
    have, want = _norms(state, known), _norms(facts.reference_state, known)
    pairs = _by_place(facts.wiring, facts.reference) if facts.reference is not None else {}
    for path, norm in have.items():
        for other in pairs.get(path, [_same_name(path, have, want)]):
            told = _told(norm, other, want)
            if told:
                text = (f"`{path}` holds the weights of `{told}` of the reference, and stands where the reference has `{other}`; correct the map of "
                        "names in the conversion")
                yield Hit(path, text, None, None, {"holds": told, "want": other})
                break


def _told(norm: dict[str, Tensor], own: str | None, want: Norms) -> str | None:
    """The other norm of the reference that a norm equals, where it is not its own; the nearest name where there are several."""
    if own is None or own not in want or not _telling(norm) or _equal(norm, want[own]):
        return None
    found = [path for path, other in want.items() if path != own and _telling(other) and _equal(norm, other)]
    return max(found, key=lambda path: _shared(path, own), default=None)


def _shared(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _norms(state: Mapping[str, Tensor], known: set[str]) -> Norms:
    """Vectors of norms by module path: of modules that are known to be norms, or whose name says so; loose ones by their own name."""
    found: Norms = {}
    for name, value in state.items():
        path, _, leaf = name.rpartition(".")
        if not isinstance(value, Tensor) or value.dim() != 1 or not value.is_floating_point() or value.is_meta:
            continue
        if leaf in PARTS and (NORM.search(path) or _among(path, known)):
            found.setdefault(path, {})[PARTS[leaf]] = value
        elif _among(name, known):
            found[name] = {"gain": value}
    return found


def _among(name: str, known: set[str]) -> bool:
    """Whether a name is known, under some prefix."""
    parts = name.split(".")
    return any(".".join(parts[i:]) in known for i in range(len(parts)))


def _norm_modules(wiring: Wiring) -> set[str]:
    """Paths of modules that norm something in the forward."""
    g, calls = wiring.facts.graph, wiring.facts.record.calls
    return {calls[s.norm.call].path for s in g.state if s is not None and s.norm is not None}


def _loose(wiring: Wiring) -> set[str]:
    """Vectors that norms are given as arguments, by names that do not say what they are: `F.layer_norm(x, (dim,), self.w1, self.b1)`."""
    g = wiring.facts.graph
    found: set[str] = set()
    for node in g.nodes:
        state = g.state[node.id]
        if state is None or state.norm is None or node.call != state.norm.call or (node.op not in ops.NORMS and node.op != "mul"):
            continue
        leaves = [g.nodes[i] for i in node.ins if g.nodes[i].op in ("param", "buffer") and len(g.nodes[i].shape) == 1]
        found |= {leaf.name for leaf in leaves if leaf.name.rpartition(".")[2] not in PARTS}
    return found


def _same_name(path: str, have: Norms, want: Norms) -> str | None:
    """The reference's norm of the same name, whatever prefix its names have."""
    if path in want:
        return path
    prefixes = Counter(w[:len(w) - len(h)] for h in have for w in want if w != h and w.endswith("." + h))
    cut = Counter(h[:len(h) - len(w)] for h in have for w in want if w != h and h.endswith("." + w))
    for prefix, _ in prefixes.most_common(1):
        if prefix + path in want:
            return prefix + path
    for prefix, _ in cut.most_common(1):
        if path.startswith(prefix) and path[len(prefix):] in want:
            return path[len(prefix):]
    return None


def _by_place(port: Wiring, reference: Wiring) -> dict[str, list[str]]:
    """Norm of the port -> norms of the reference in its places, over streams that have the same sites."""
    found: dict[str, list[str]] = {}
    ours, theirs = ([s for s in w.streams if s.main] for w in (port, reference))
    if len(ours) != len(theirs):
        return found
    for a, b in zip(ours, theirs, strict=True):
        if [sorted(x.kind for x in s.branches) for s in a.sites] != [sorted(x.kind for x in s.branches) for s in b.sites]:
            continue
        mine, other = _places(a), _places(b)
        for place, path in mine.items():
            if place in other:
                found.setdefault(path, []).append(other[place])
    return found


def _places(stream: Stream) -> dict[tuple[int, str, str], str]:
    """(site, kind of branch, side) -> norm, where it is one norm; the final norm is at site -1."""
    several: dict[tuple[int, str, str], list[str]] = {}
    for site in stream.sites:
        for branch in site.branches:
            for side, paths in (("in", branch.in_norms), ("out", branch.out_norms)):
                several.setdefault((site.index, branch.kind, side), []).extend(paths)
        if site.placement == "post":
            several.setdefault((site.index, "", "post"), []).extend(site.norm_modules)
    final = stream.final_norm
    if final is not None:
        several[-1, "", "final"] = [final]
    return {place: paths[0] for place, paths in several.items() if len(set(paths)) == 1}


def _telling(norm: dict[str, Tensor]) -> bool:
    """Whether some part is not as it was made."""
    return any(bool((value != value[0]).any()) or float(value[0]) not in FRESH[part] for part, value in norm.items() if value.numel())


def _equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether the parts that both have are equal, up to the rounding of the coarser dtype."""
    common = a.keys() & b.keys()
    return bool(common) and all(a[p].shape == b[p].shape and _close(a[p], b[p]) for p in common)


def _close(a: Tensor, b: Tensor) -> bool:
    step = max(_step(a), _step(b))
    x, y = a.double().cpu(), b.double().cpu()
    return bool(((x - y).abs() <= 2 * step * torch.maximum(x.abs(), y.abs())).all())


def _step(t: Tensor) -> float:
    """The relative spacing of the coarsest dtype that the values have been through."""
    kinds = (torch.bfloat16, torch.float16, t.dtype)
    return next(torch.finfo(kind).eps for kind in kinds if torch.equal(t.to(kind).to(t.dtype), t) or kind == t.dtype)


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        x = x + self.attn(n, n, n, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


def _net() -> nn.Module:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(_Block(), _Block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return nn.Sequential(net).eval()


def _example(names: dict[str, str]) -> Example:
    reference, port = _net(), _net()
    state = {re.sub(r"norm[12]", lambda found: names[found[0]], name): value for name, value in reference.state_dict().items()}
    port.load_state_dict(state)
    return Example(port, (torch.randn(2, 6, 4),), where="blocks.0.norm", options={"stage": "values", "reference": reference})


def bad() -> Example:
    """The conversion takes the two norms of a block for one another."""
    return _example({"norm1": "norm2", "norm2": "norm1"})


def good() -> Example:
    """Each norm is loaded into its own place."""
    return _example({"norm1": "norm1", "norm2": "norm2"})
