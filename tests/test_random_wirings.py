"""Random wirings with truth known by construction: 1,000 of them recovered exactly, and the generator held to its word."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

import skipway
from skipway.checks.records import Finding
from skipway.wiring.structure import Branch as FoundBranch
from skipway.wiring.structure import Site, Stream, Wiring
from wirings import compare, random_wiring
from wirings.blocks import BlockPlan, StackPlan
from wirings.faults import FAULTS
from wirings.generate import TokenPlan, build_tokens, seeded
from wirings.sites import SitePlan
from wirings.spellings import ALL, MORE, PLAIN, join_fused, join_scaled
from wirings.strategy import wirings
from wirings.sublayers import VARIANTS, Branch
from wirings.truth import Fault, SiteTruth, Truth, among

SEEDS = 1000
CHUNK = 25


def problems_of(seed: int) -> list[str]:
    model, inputs, truth = random_wiring(seed)
    report = skipway.check(model, *inputs, expect=skipway.Expect(**truth.expect))
    return [f"seed {seed}: {p}" for p in compare(truth, report.wiring, report.findings)]


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_seeded_wirings_are_recovered_exactly(start: int) -> None:
    missed = [p for seed in range(start, start + CHUNK) for p in problems_of(seed)]
    assert missed == [], "\n".join(missed)


@settings(max_examples=50, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(wirings())
def test_drawn_wirings_are_recovered_exactly(wiring) -> None:
    model, inputs, truth = wiring
    report = skipway.check(model, *inputs, expect=skipway.Expect(**truth.expect))
    assert compare(truth, report.wiring, report.findings) == [], truth.text


# --- the generator itself; nothing below needs the engine ------------------------------------------------------------------------------------

@pytest.mark.parametrize("start", range(0, 200, 50))
def test_models_run_and_their_outputs_are_finite(start: int) -> None:
    for seed in range(start, start + 50):
        model, inputs, truth = random_wiring(seed)
        with torch.no_grad():
            out = model(*[x.clone() for x in inputs])
        assert torch.isfinite(out).all(), f"seed {seed}\n{truth.text}"
        assert not model.training


def test_a_seed_gives_one_wiring() -> None:
    for seed in range(40):
        (first, inputs, truth), (again, same, twin) = random_wiring(seed), random_wiring(seed)
        assert truth == twin and all(torch.equal(a, b) for a, b in zip(inputs, same, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_every_feature_occurs_in_the_tested_seeds() -> None:
    seen = {f for seed in range(SEEDS) for f in random_wiring(seed)[2].features}
    wanted = {f"fault {f}" for f in FAULTS} | {f"spelling {s}" for s in ALL} | {f"branch {k}/{v}" for k, vs in VARIANTS.items() for v in vs}
    wanted |= {f"placement {p}" for p in ("pre", "post", "sandwich", "output", "none")} | {f"lanes {n}" for n in (2, 3, 4)}
    wanted |= {"wrapper nested", "block shared", "norm shared", "spelling fused pair add and norm", "mask given"}
    wanted |= {"block parallel, one add", "block parallel, two adds", "family images", "family encoder and decoder"}
    assert wanted <= seen, sorted(wanted - seen)
    assert len(ALL) >= 12


@pytest.mark.parametrize("name", sorted(PLAIN))
@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 4, 5, 5)])
def test_plain_spellings_equal_the_sum(name: str, shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape)
    kept = x.clone()
    assert torch.equal(PLAIN[name](x, y.clone()), x + y)
    assert torch.equal(x, kept), "the stream must not be written to"


@pytest.mark.parametrize("name", sorted(MORE))
def test_other_spellings_equal_their_formula(name: str) -> None:
    x, y, gamma, spelling = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(8), MORE[name]
    if spelling.fused:
        last = nn.Linear(8, 8, bias=False)
        torch.testing.assert_close(join_fused(name, x, y, last), x + last(y))
        return
    factor = gamma if spelling.scale == "vector" else spelling.branch_scale
    torch.testing.assert_close(join_scaled(name, x, y, gamma), spelling.gain * x + factor * y)


@pytest.mark.parametrize("spelling", ALL)
def test_a_silenced_branch_leaves_gain_times_the_stream(spelling: str) -> None:
    plan = SitePlan((("ffn", "no_bias"),), "pre", spelling=spelling)
    stack = StackPlan((BlockPlan((plan, plan)),) * 2, stem="none")
    model, inputs, truth = build_tokens(TokenPlan(stack), seeded(0))
    silence(model)
    with torch.no_grad():
        out = model(*inputs)
    gain = 1.0
    for site in truth.sites:
        assert isinstance(site.gain, float)
        gain *= site.gain
    torch.testing.assert_close(out, gain * inputs[0])


def test_pre_norm_wirings_have_the_gain_of_their_truth() -> None:
    """With every branch zero the stack multiplies its input by the product of the gains; raw inputs and no head only."""
    seen = 0
    for seed in range(500):
        model, inputs, truth = random_wiring(seed)
        gains = [s.gain for s in truth.sites]
        bare = {"stem none", "head none"} <= set(truth.features) and "stem norm" not in truth.features
        if truth.fault or not bare or True in truth.final_norms or any(s.placement == "post" for s in truth.sites) or None in gains:
            continue
        silence(model)
        with torch.no_grad():
            out = model(*inputs)
        # An output norm turns zeros into its bias, which is zero in a fresh model.
        torch.testing.assert_close(out, float(torch.tensor(gains).prod()) * inputs[0], msg=lambda m, t=truth.text: f"{m}\n{t}")
        seen += 1
    assert seen >= 3


def silence(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, Branch):
            part.silence()


def found(**changes: object) -> Site:
    own = {"index": 0, "layer": 0, "module": "blocks.0", "file": None, "line": None, "placement": "pre", "norm": "LayerNorm", "norm_modules": (),
           "shortcut": "identity", "gain": 1.0, "scale": "none", "branch_scale": 1.0, "parallel": False, "in_place": False,
           "branches": (FoundBranch("ffn", ()),)}
    return Site(**{**own, **changes})  # type: ignore[arg-type]


TRUE_SITE = SiteTruth("blocks.0", ("ffn",), "pre", "LayerNorm", parallel=False)


@pytest.mark.parametrize(("change", "told"), [
    ({"module": "blocks.1"}, "module"), ({"placement": "post"}, "placement"), ({"norm": "RMSNorm"}, "norm"), ({"shortcut": "normed"}, "shortcut"),
    ({"gain": 2.0}, "gain"), ({"gain": None}, "gain"), ({"scale": "vector"}, "scale"), ({"parallel": True}, "parallel"),
    ({"branches": (FoundBranch("moe", ()),)}, "branches")])
def test_compare_tells_each_difference(change: dict[str, object], told: str) -> None:
    truth = Truth((TRUE_SITE,), final_norms=(True,))

    def problems(site: Site) -> list[str]:
        return compare(truth, Wiring((Stream("main", True, 1, "", "final_norm", (site,)),)), [])

    assert problems(found()) == []
    assert len(problems(found(**change))) == 1 and told in problems(found(**change))[0]


def test_compare_tells_lanes_final_norm_extra_sites_and_false_alarms() -> None:
    truth, finding = Truth((TRUE_SITE,)), Finding("SKW101", "missing-skip", "error", "blocks.0", "said")
    wiring = Wiring((Stream("main", True, 2, "", "norm", (found(),)), Stream("side", False, 1, "", None, (found(),))))
    assert [p.split()[0] for p in compare(truth, wiring, [finding])] == ["lanes", "final", "1", "false"]
    twice = Wiring((Stream("main", True, 1, "", None, (found(), found())),))
    assert compare(truth, twice, [])[0].startswith("2 sites on main streams, want 1")


def test_compare_wants_the_fault_named_in_its_place() -> None:
    truth = Truth((TRUE_SITE,), fault=Fault("missing_skip", ("SKW101",), ("blocks.1", "blocks.1.sub.0.*"), ("SKW105",), ("blocks.1.*",)))
    wiring = Wiring((Stream("main", True, 1, "", None, (found(),)),))

    def problems(*findings: tuple[str, str]) -> list[str]:
        return compare(truth, wiring, [Finding(code, "", "error", where, "") for code, where in findings])

    assert problems(("SKW101", "blocks.1.sub.0.branch")) == [] == problems(("SKW101", "blocks.1"), ("SKW105", "blocks.1.sub.1"))
    assert "got nothing" in problems()[0]
    assert "named at 'blocks.0'" in problems(("SKW101", "blocks.0"))[0]
    assert "false alarm SKW204" in problems(("SKW101", "blocks.1"), ("SKW204", "blocks.1"))[0]
    assert "is not found" in compare(truth, Wiring(()), [Finding("SKW101", "", "error", "blocks.1", "")])[0]


def test_among() -> None:
    assert among("a.b", ("a.b",)) and among("a.b.c", ("a.b.*",)) and among("a.b", ("a.b.*",)) and among("x", ("*",))
    assert not among("a.bc", ("a.b.*",)) and not among("a.b.c", ("a.b",)) and not among("a", ("a.b.*",))
