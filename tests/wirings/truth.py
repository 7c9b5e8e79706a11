"""What is known of a wiring by construction, and the comparison of it with what was recovered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from skipway.wiring.structure import Site, Wiring

Gain = float | None | Literal["any"]     # None: not a constant; "any": the words of the design do not settle it
LOUD = ("error", "warning")


class FindingLike(Protocol):
    """The fields of a finding that the comparison reads."""

    @property
    def code(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def message(self) -> str: ...


@dataclass(frozen=True)
class SiteTruth:
    """One join of a main stream; `module` is the one whose forward runs the add."""

    module: str
    kinds: tuple[str, ...]              # branch kinds, sorted
    placement: str
    norm: str | None                    # None where the placement is "none"
    shortcut: str = "identity"
    gain: Gain = 1.0
    scale: str = "none"                 # "any" on lanes: read and write weights are no branch scale
    branch_scale: float | None = None   # compared where the scale is "constant"
    parallel: bool | None = None        # None: not compared


@dataclass(frozen=True)
class Fault:
    """A planted fault: one of `codes` must be found at one of `places`; `also` may be found beside it."""

    name: str
    codes: tuple[str, ...]
    places: tuple[str, ...]             # module paths; "a.b.*" also takes what lies below a.b; "*" takes any
    also: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()       # places where sites are not compared, and where `also` may be found


@dataclass(frozen=True)
class Truth:
    """Everything that is known about one random wiring."""

    sites: tuple[SiteTruth, ...]
    lanes: int = 1
    final_norms: tuple[bool, ...] = (False,)    # one for each main stream
    inner: int = 0                      # joins of streams that live inside a branch
    expect: dict[str, Any] = field(default_factory=dict)      # keyword arguments of skipway.Expect
    fault: Fault | None = None
    features: tuple[str, ...] = ()
    text: str = ""                      # a description for a person


def compare(truth: Truth, wiring: Wiring, findings: Iterable[FindingLike]) -> list[str]:
    """Problems in the order in which a reader meets them; [] when the wiring was recovered exactly."""
    loud = [f for f in findings if f.severity in LOUD]
    if truth.fault is not None:
        return _compare_fault(truth, truth.fault, wiring, loud)
    problems = _compare_sites(truth.sites, wiring.sites)
    mains = [s for s in wiring.streams if s.main]
    lanes = max((s.lanes for s in mains), default=0)
    if lanes != truth.lanes:
        problems.append(f"lanes {lanes}, want {truth.lanes}")
    ends, wanted = [s.final_norm is not None for s in mains], list(truth.final_norms)
    # How sites are cut into streams is not judged, so other numbers of streams are held against "any".
    if (sorted(ends) != sorted(wanted)) if len(ends) == len(wanted) else (any(ends) != any(wanted)):
        problems.append(f"final norms {[s.final_norm for s in mains]}, want {wanted}")
    inner = sum(len(s.sites) for s in wiring.streams if not s.main)
    if inner != truth.inner:
        problems.append(f"{inner} joins on streams that are not main, want {truth.inner}")
    return problems + [f"false alarm {f.code} at {f.where!r}: {f.message}" for f in loud]


def _compare_sites(want: Sequence[SiteTruth], have: Sequence[Site]) -> list[str]:
    if len(want) != len(have):
        told = ", ".join(f"{s.module}:{'+'.join(b.kind for b in s.branches)}:{s.placement}" for s in have)
        return [f"{len(have)} sites on main streams, want {len(want)} ({told or 'none'})"]
    return [f"site {i} in {w.module!r}: {p}" for i, (w, h) in enumerate(zip(want, have, strict=True)) for p in _differences(w, h)]


def _differences(want: SiteTruth, have: Site) -> list[str]:
    kinds = tuple(sorted(b.kind for b in have.branches))
    pairs: list[tuple[str, object, object]] = [
        ("module", have.module, want.module), ("branches", kinds, want.kinds), ("placement", have.placement, want.placement),
        ("shortcut", have.shortcut, want.shortcut)]
    if want.placement != "none":
        pairs.append(("norm", have.norm, want.norm))
    if want.scale != "any":
        pairs.append(("scale", have.scale, want.scale))
    if want.parallel is not None:
        pairs.append(("parallel", have.parallel, want.parallel))
    problems = [f"{name} {h!r}, want {w!r}" for name, h, w in pairs if h != w]
    if want.gain != "any" and not _close(have.gain, want.gain):
        problems.append(f"gain {have.gain!r}, want {want.gain!r}")
    if want.scale == "constant" and not _close(have.branch_scale, want.branch_scale):
        problems.append(f"branch scale {have.branch_scale!r}, want {want.branch_scale!r}")
    return problems


def _close(have: float | None, want: float | str | None) -> bool:
    if have is None or want is None or isinstance(want, str):
        return have is want
    return abs(have - want) <= 1e-6 * max(1.0, abs(want))


def among(path: str, places: Iterable[str]) -> bool:
    """Whether `path` is one of `places`, or lies below one that ends in ".*"."""
    return any(p == "*" or path == p.removesuffix(".*") or (p.endswith(".*") and path.startswith(p[:-1])) for p in places)


def _compare_fault(truth: Truth, fault: Fault, wiring: Wiring, loud: Sequence[FindingLike]) -> list[str]:
    told = ", ".join(f"{f.code} at {f.where!r}" for f in loud) or "nothing"
    named = [f for f in loud if f.code in fault.codes]
    problems = []
    if not named:
        problems.append(f"{fault.name}: want {'/'.join(fault.codes)}, got {told}")
    elif not any(among(f.where, fault.places) for f in named):
        problems.append(f"{fault.name}: {named[0].code} named at {named[0].where!r}, want {' or '.join(map(repr, fault.places))}")
    allowed = {*fault.codes, *fault.also}
    problems += [f"{fault.name}: false alarm {f.code} at {f.where!r}: {f.message}" for f in loud
                 if f.code not in allowed or not among(f.where, (*fault.places, *fault.touched))]
    have = iter([(s.module, tuple(sorted(b.kind for b in s.branches))) for stream in _in_order(wiring) for s in stream])
    for site in truth.sites:
        if not among(site.module, fault.touched) and (site.module, site.kinds) not in have:
            problems.append(f"{fault.name}: the sound site in {site.module!r} ({'+'.join(site.kinds)}) is not found in its place")
            break
    return problems


def _in_order(wiring: Wiring) -> list[tuple[Site, ...]]:
    """Sites by stream; a fault may cut a stream, so main and other streams count."""
    return [s.sites for s in wiring.streams if s.main] + [s.sites for s in wiring.streams if not s.main]
