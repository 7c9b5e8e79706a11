"""Wirings built by hand for the tests of the drawing, and random ones with hostile names."""

import random
from dataclasses import replace
from typing import Any

from skipway.wiring.structure import Branch, Link, Site, Stream, Wiring

NASTY = ("<script>alert(1)</script>", "a\"b'c", "x\ny\r\t", "\u202eevil\u2066", "\x1b[31mred\x07", "A" * 10_000,
         "\N{CJK UNIFIED IDEOGRAPH-5C64}" * 50,
         "a&b;", "]]>", "\ud800lone", "e\u0301" * 30, "", "{0-3}", "0", "..", "a..b", " ", "\x00", "-->", "%s", "layers.0", "&#60;", "\ufffe")


def site(index: int, layer: int, module: str, kind: str = "ffn", **other: Any) -> Site:
    """A plain pre-norm site; several kinds with "+"."""
    branches = tuple(Branch(k, (f"{module}.{k}",), (f"{module}.norm_{k}",)) for k in kind.split("+"))
    plain = Site(index, layer, module, "net.py", 7 + index % 2, "pre", "LayerNorm", tuple(f"{module}.norm_{k}" for k in kind.split("+")), "identity",
                 1.0, "none", 1.0, False, False, branches)
    return replace(plain, **other)


def stack(depth: int, path: str = "layers", kinds: tuple[str, ...] = ("self_attention", "ffn"), **other: Any) -> tuple[Site, ...]:
    """Blocks of one site a kind."""
    size = len(kinds)
    return tuple(site(size * n + k, n, f"{path}.{n}", kind, **other) for n in range(depth) for k, kind in enumerate(kinds))


def stream(name: str, sites: tuple[Site, ...], **other: Any) -> Stream:
    return replace(Stream(name, True, 1, f"{name}.embed", f"{name}.norm", sites), **other)


def wiring(*streams: Stream, links: tuple[Link, ...] = ()) -> dict[str, Any]:
    return Wiring(streams, "Net", 8_030_261_248, links=links).to_dict()


def finding(where: str, rule: str = "normed-skip", code: str = "SKW201", severity: str = "error", line: int | None = None,
            message: str = "") -> dict[str, Any]:
    return {"code": code, "rule": rule, "severity": severity, "where": where, "message": message or f"`{where}` is wrong",
            "file": "net.py" if line else None, "line": line, "values": {}}


def report(of: dict[str, Any], *findings: dict[str, Any]) -> dict[str, Any]:
    return {"schema": "skipway.report/1", "target": "net.py:Net", "stage": "graph", "ok": not findings, "suppressed": 0, "rules_run": [],
            "findings": list(findings), "wiring": of}


def encoder_decoder(depth: int = 3) -> dict[str, Any]:
    """A decoder whose cross-attentions read the encoder's end."""
    links = tuple(Link("reads", "encoder", 2 * depth, "decoder", 3 * n + 1) for n in range(depth))
    return wiring(stream("encoder", stack(depth, "encoder.block")),
                  stream("decoder", stack(depth, "decoder.block", ("self_attention", "cross_attention", "ffn"))), links=links)


def unet() -> dict[str, Any]:
    """Three levels, each made of the one before; two long skips, one inside the other."""
    links = (Link("follows", "one", 1, "two", 0), Link("follows", "two", 1, "three", 0), Link("concat", "two", 1, "three", 1),
             Link("concat", "one", 1, "three", 2))
    third = (site(0, 0, "mid", "conv"), site(1, 1, "up.0", "conv"), site(2, 2, "up.1", "conv"))
    return wiring(stream("one", (site(0, 0, "down.0", "conv"),), final_norm=None), stream("two", (site(0, 0, "down.1", "conv"),), final_norm=None),
                  stream("three", third), links=links)


class Random:
    """Random reports: any placement, any link, names out of NASTY among plain ones."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)

    def name(self, hostile: float = 0.3) -> str:
        r = self.pick
        plain = f"{r.choice(('layers', 'enc.block', 'dec.h'))}.{r.randrange(6)}{r.choice(('', '.attn', '.mlp', f'.layer.{r.randrange(3)}'))}"
        return r.choice(NASTY) if r.random() < hostile else plain

    def branch(self) -> Branch:
        r = self.pick
        kinds = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm", "other")
        paths = [tuple(self.name() for _ in range(r.randrange(n))) for n in (3, 2, 2)]
        return Branch(r.choice(kinds), paths[0], paths[1], paths[2], r.choice(("none", "dropout", "path")))

    def site(self, i: int) -> Site:
        r = self.pick
        return Site(i, r.randrange(max(1, i // 2 + 1)), self.name(), r.choice((None, self.name())), r.choice((None, 3)),
                    r.choice(("pre", "post", "sandwich", "output", "inner", "none")), r.choice((None, "LayerNorm", self.name())),
                    tuple(self.name() for _ in range(r.randrange(3))), r.choice(("identity", "identity", "projection", "normed", "pooled", "mixed")),
                    r.choice((1.0, None, 2.0, 1e300, -0.5)), r.choice(("none", "constant", "scalar", "vector", "input_dependent")),
                    r.choice((None, 0.5)), r.random() < 0.3, r.random() < 0.3, tuple(self.branch() for _ in range(r.choice((1, 1, 1, 2, 3, 0)))),
                    r.choice((None, None, None, 0, 1, i - 1, 99)), r.choice((None, None, 0, i - 1)))

    def report(self) -> dict[str, Any]:
        r = self.pick
        streams = [Stream(self.name() if r.random() < 0.2 else f"s{k}", r.random() < 0.8, r.choice((1, 1, 4, 16)), self.name(),
                          r.choice((None, self.name())), tuple(self.site(i) for i in range(r.randrange(9)))) for k in range(r.randrange(5))]
        kinds = ("follows", "reads", "add", "concat", "inside")
        links = tuple(Link(r.choice(kinds), r.choice(streams).name, r.randrange(-1, 10), r.choice(streams).name, r.randrange(-1, 10))
                      for _ in range(r.randrange(9) if streams else 0))
        rules = ("missing-skip", "missing-final-norm", "normed-skip", self.name())
        found = [finding(self.name(), r.choice(rules), r.choice(("SKW101", "SKW201", self.name())), r.choice(("error", "warning", "note")),
                         r.choice((None, 3, 4)), f"{self.name()} {self.name()}") for _ in range(r.randrange(6))]
        whole = report(Wiring(tuple(streams), self.name(), 5, links=links).to_dict(), *found)
        return {**whole, "target": self.name()}
