"""The contract of an architecture, held for every member of the registry: its numbers are those of transformers' class, and so is its wiring.

`models/<name>.py` beside this file says which class that is; `models/_model_case.py` how.
"""

import copy
import functools
import importlib.util
import inspect
import json
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent / "models"))

import _model_case as m

import skipway
from skipway import _registry, schemes
from skipway._errors import ArchitectureNotPublished, CheckpointError, UsageError
from skipway.models._build import PACKAGE, family

NAMES = skipway.models.names()
PUBLIC = [n for n in NAMES if not hasattr(_registry.load(PACKAGE, n.replace("_", "-")), "NOT_PUBLISHED")]
CASES = [pytest.param(n, c, id=f"{n}-{c['id']}") for n in PUBLIC for c in m.described(n).CASES]
FIRST = [pytest.param(n, m.described(n).CASES[0], id=n) for n in PUBLIC if m.described(n).CASES]
SCHEMES = ("plain", "rezero", "deepnorm", "hyper", "block_attention_residual")
TRUTH = m.readings()

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
    pytest.mark.filterwarnings("ignore"),                   # transformers warns of what the next release renames
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, m.Case], tuple[nn.Module, pathlib.Path]]:
    """transformers' model of a case and the folder that it was written to."""
    made: dict[str, tuple[nn.Module, pathlib.Path]] = {}

    def get(name: str, case: m.Case) -> tuple[nn.Module, pathlib.Path]:
        key = f"{name}-{case['id']}"
        if key not in made:
            home = tmp_path_factory.mktemp(key)
            made[key] = (m.reference(case, home), home)
        theirs, home = made[key]
        return theirs.eval(), home
    return get


Folder = Callable[[str, m.Case], tuple[nn.Module, pathlib.Path]]


def compared(case: m.Case, theirs: nn.Module, ours: nn.Module, home: pathlib.Path, masked: bool, train: bool) -> tuple[float, float, str]:
    """The worst relative difference of the outputs, that of the gradients, and where."""
    theirs, ours = copy.deepcopy(theirs).train(train), ours.train(train)
    inputs = m.drawn(case, masked=masked)
    m.gradients(case, theirs, inputs)
    m.gradients(case, ours, inputs)
    theirs.eval()
    ours.eval()
    with torch.no_grad():
        apart = max(m.distance(a, b) for a, b in zip(m.outputs(case, ours, inputs), m.outputs(case, theirs, inputs), strict=True))
    wanted = dict(m.as_weights(theirs, home).named_parameters())
    least = 1e-4 * max(float(g.abs().max()) for g in wanted.values())
    worst = {n: m.distance(torch.zeros_like(p) if p.grad is None else p.grad, wanted[n], least) for n, p in ours.named_parameters()}
    where = max(worst, key=worst.__getitem__)
    return apart, worst[where], where


def ways() -> list[Any]:
    """Each case with and without padding, in evaluation and in training; those that repeat another but for one of the two are slow."""
    made = []
    for param in CASES:
        name, case = param.values
        padded = case.get("masked", case["inputs"] != "images")
        for masked in (False, True) if padded else (False,):
            for train in (False, True):
                label = f"{name}-{case['id']}-{'padded' if masked else 'whole'}-{'train' if train else 'eval'}"
                made.append(pytest.param(name, case, masked, train, id=label, marks=[pytest.mark.slow] if padded and masked != train else []))
    return made


@pytest.mark.parametrize(("name", "case", "masked", "train"), ways())
def test_equal_to_the_reference(name: str, case: m.Case, masked: bool, train: bool, folder: Folder, tmp_path: pathlib.Path) -> None:
    theirs, home = folder(name, case)
    ours = skipway.models.load(home)
    assert ours.name() == name
    assert next(ours.parameters()).dtype == torch.float64
    apart, gradient, where = compared(case, theirs, ours, tmp_path, masked, train)
    assert apart <= 1e-10
    assert gradient <= 1e-8, where


@pytest.mark.parametrize(("name", "case"), CASES)
def test_transformers_reads_what_is_saved(name: str, case: m.Case, folder: Folder, tmp_path: pathlib.Path) -> None:
    theirs, home = folder(name, case)
    skipway.models.save(skipway.models.load(home), tmp_path)
    back = m.read(case, tmp_path)
    assert type(back) is type(theirs)
    inputs = m.drawn(case, masked=case.get("masked", case["inputs"] != "images"))
    with torch.no_grad():
        for a, b in zip(m.outputs(case, back, inputs), m.outputs(case, theirs, inputs), strict=True):
            assert torch.equal(a, b)
    told, wanted = dict(back.state_dict()), dict(theirs.state_dict())
    assert told.keys() == wanted.keys()
    assert all(torch.equal(told[k], wanted[k]) for k in wanted)
    again = skipway.models.load(tmp_path)
    assert again.config == skipway.models.load(home).config


def rounded(case: m.Case, theirs: nn.Module, ours: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances from the float64 result of a run in bfloat16, transformers' and ours, one for each input and sample."""
    low, ours = copy.deepcopy(theirs).to(torch.bfloat16), ours.to(torch.bfloat16)
    both: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    with torch.no_grad():
        for seed in range(case.get("seeds", 40)):
            inputs = m.drawn(case, seed)
            short = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in inputs.items()}
            exact = {k: v.double() if v.is_floating_point() else v for k, v in short.items()}
            want = m.outputs(case, theirs, exact)[0]
            for kept, model in zip(both, (low, ours)):
                away = m.outputs(case, model, short)[0].double() - want
                kept.append(away.flatten(1).pow(2).mean(1).sqrt() / want.flatten(1).pow(2).mean(1).sqrt())
    return torch.cat(both[0]), torch.cat(both[1])


def farther(theirs: torch.Tensor, ours: torch.Tensor) -> float:
    """By how many standard errors ours is farther away, over paired samples."""
    apart = ours - theirs
    spread = float(apart.std()) / len(apart) ** 0.5
    return 0.0 if spread == 0 else float(apart.mean()) / spread


@pytest.mark.parametrize(("name", "case"), FIRST)
def test_as_close_in_bfloat16(name: str, case: m.Case, folder: Folder) -> None:
    """Not farther from float64 than transformers' own run, over paired inputs."""
    theirs, home = folder(name, case)
    wanted, told = rounded(case, theirs, skipway.models.load(home))
    assert farther(wanted, told) < 3, (float(told.mean()), float(wanted.mean()))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_wired_like_the_reference(name: str, case: m.Case, folder: Folder) -> None:
    theirs, home = folder(name, case)
    ours, inputs = skipway.models.load(home), m.drawn(case)
    report = skipway.check(ours, **inputs)
    assert [f.message for f in report.findings] == []
    assert m.wired(report.wiring) == m.wired(skipway.check(theirs, **inputs).wiring)


@pytest.mark.parametrize(("name", "case"), [p for p in CASES if "truth" in p.values[1]])
def test_wired_as_read_by_hand(name: str, case: m.Case, tmp_path: pathlib.Path) -> None:
    if case["truth"] not in TRUTH:
        pytest.skip("no ../shared/truth beside this checkout")
    entry = TRUTH[case["truth"]]
    theirs, inputs = m.read_by_hand(entry)
    theirs.save_pretrained(tmp_path)                        # type: ignore[operator]
    report = skipway.check(skipway.models.load(tmp_path), **inputs)
    assert [f.message for f in report.findings] == []
    got = [(final, [(placement, norm, kinds) for placement, norm, kinds, *_ in sites]) for _, final, sites in m.wired(report.wiring)]
    assert got == [(s["final_norm"], [(t["placement"], t["norm"], sorted(t["branches"])) for t in s["sites"]]) for s in entry["streams"] if s["main"]]


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def counted_by_reference(model: skipway.models.Model) -> int:
    """The parameters of transformers' class for the configuration that our model writes."""
    import transformers
    try:
        told = model.written()
    except CheckpointError:
        pytest.skip("transformers has no class for it; see test_models_apart.py")
    kind = getattr(transformers, told.pop("architectures")[0])
    told.pop("model_type")
    with torch.device("meta"):
        return count(kind(kind.config_class(**told)))


def sizes() -> list[Any]:
    """The published sizes; those of more than 32 blocks are slow."""
    return [pytest.param(name, size, id=f"{name}-{size}", marks=[pytest.mark.slow] if config.blocks > 32 else [])
            for name in PUBLIC if m.described(name).CASES for size, config in skipway.models.sizes(name).items()]


@pytest.mark.parametrize(("name", "size"), sizes())
def test_as_many_parameters_as_the_reference(name: str, size: str) -> None:
    with torch.device("meta"):
        model = skipway.models.build(name, size)
    assert count(model) == counted_by_reference(model) + getattr(m.described(name), "BESIDE", {}).get(size, 0)


def call(name: str) -> m.Inputs:
    """Inputs of the tiny size."""
    config: Any = skipway.models.sizes(name)["tiny"]
    cases = m.described(name).CASES
    case = {k: v for k, v in cases[0].items() if k != "more"} if cases else {"inputs": "tokens"}
    return m.drawn(case, kwargs={"vocab_size": getattr(config, "vocab", 0), "image_size": getattr(config, "image", 64)}, dtype=torch.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PUBLIC)
def test_another_scheme_is_one_argument(name: str, scheme: str) -> None:
    """One step of training, finite, and `check` recovers the scheme."""
    torch.manual_seed(0)
    model, inputs = skipway.models.build(name, scheme=scheme), call(name)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    wanted = model(**inputs).logits.argmin(-1).flatten()
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(**inputs).logits.flatten(0, -2), wanted)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    assert losses[1] < losses[0] < float("inf")
    rule = schemes.load(scheme)
    report = skipway.check(model.eval(), **inputs)
    assert [f.message for f in report.findings if f.severity != "note"] == []
    main = [s for s in report.wiring.streams if s.main]
    lanes = next(s.scheme.lanes for s in model.modules() if hasattr(s, "scheme") and isinstance(s.scheme, schemes.Scheme))
    assert {s.lanes for s in main} == {lanes}
    want = getattr(m.described(name), "PLACEMENTS", {}).get(rule.placement, rule.placement)
    assert {t.placement for s in main for t in s.sites if m.joined_by_scheme(t)} == {want}


@pytest.mark.parametrize("name", PUBLIC)
def test_states_on_request(name: str) -> None:
    """One stream state behind every sublayer; the forward is the same with them."""
    model, inputs = skipway.models.build(name).eval(), call(name)
    plain, told = model(**inputs), model(**inputs, states=True)
    assert plain.states == ()
    assert torch.equal(plain.hidden, told.hidden)
    sites = sum(len(s.sites) for s in skipway.check(model, **inputs).wiring.streams if s.main)
    assert len(told.states) == sites


@pytest.mark.parametrize("name", PUBLIC)
def test_what_a_member_says(name: str) -> None:
    module = _registry.load(PACKAGE, name.replace("_", "-"))
    told = module.__doc__ or ""
    assert told.startswith(f"{name}: ")
    assert all(part in told for part in ("Source:", "Year", "Special:", "site", "final norm"))
    file = pathlib.Path(inspect.getfile(module))
    assert len(file.read_text(encoding="utf-8").splitlines()) < 200
    assert "tiny" in module.SIZES and len(module.SIZES) > 1
    assert family(name).RULE in schemes.names()
    assert (m.HERE / f"{name}.py").exists()


def test_no_description_without_a_member() -> None:
    assert {f.stem for f in m.HERE.glob("[a-z]*.py")} == set(PUBLIC)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in PUBLIC])
def test_what_was_never_published_is_not_built(name: str) -> None:
    with pytest.raises(ArchitectureNotPublished, match=r"^" + name + r": its architecture was never published\. Public, .* Not public"):
        skipway.models.build(name)


def broken(home: pathlib.Path, to: pathlib.Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> pathlib.Path:
    """A copy of a folder with a fault."""
    from safetensors.torch import load_file, save_file
    config, tensors = json.loads((home / "config.json").read_text()), load_file(home / "model.safetensors")
    change(config, tensors)
    (to / "config.json").write_text(json.dumps(config))
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    return to


def a_matrix(tensors: dict[str, torch.Tensor]) -> str:
    return next(n for n in sorted(tensors) if tensors[n].ndim > 1)


@pytest.mark.parametrize(("name", "case"), FIRST)
def test_a_folder_with_a_fault_is_refused(name: str, case: m.Case, folder: Folder, tmp_path: pathlib.Path) -> None:
    """By name: a tensor that is missing, one too many, one of another shape, a field that nobody knows, an architecture with another head."""
    home = folder(name, case)[1]
    names: list[str] = []

    def lost(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        names.append(a_matrix(tensors))
        del tensors[names[-1]]

    def spare(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors["spare.weight"] = torch.zeros(3)

    def grown(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        names.append(a_matrix(tensors))
        old = tensors[names[-1]]
        tensors[names[-1]] = torch.zeros(old.shape[0] + 1, *old.shape[1:])

    def unknown(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        config["residual_twist"] = 3

    def headed(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        config["architectures"] = [config["architectures"][0].split("For")[0].removesuffix("Model") + "ForQuestionAnswering"]

    with pytest.raises(CheckpointError, match="tensors are missing, the first is "):
        skipway.models.load(broken(home, tmp_path, lost))
    with pytest.raises(CheckpointError, match=f"does not have, the first is spare.weight|{names[0]}"):
        skipway.models.load(broken(home, tmp_path, spare))
    with pytest.raises(CheckpointError, match=r"has the shape \(\d+.*, the configuration wants \(\d+") as told:
        skipway.models.load(broken(home, tmp_path, grown))
    assert names[-1] in str(told.value)
    with pytest.raises(CheckpointError, match="not supported here: residual_twist = 3"):
        skipway.models.load(broken(home, tmp_path, unknown))
    with pytest.raises(CheckpointError, match="QuestionAnswering"):
        skipway.models.load(broken(home, tmp_path, headed))


@pytest.mark.parametrize(("name", "case"), FIRST[:1])
def test_a_pickle_is_refused(name: str, case: m.Case, folder: Folder, tmp_path: pathlib.Path) -> None:
    home = folder(name, case)[1]
    shutil.copy(home / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is a pickle.*convert it: .*save_pretrained"):
        skipway.models.load(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: no such file"):
        skipway.models.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "nobody"}')
    with pytest.raises(CheckpointError, match=r"model_type is 'nobody'; supported are .*llama"):
        skipway.models.load(tmp_path)
    with pytest.raises(CheckpointError, match="a checkpoint folder has one"):
        skipway.models.load(tmp_path / "nowhere")


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match="unknown model 'lama'; did you mean llama"):
        skipway.models.build("lama")
    with pytest.raises(UsageError, match="unknown size '3-9b' of llama; did you mean 3-8b"):
        skipway.models.build("llama", "3-9b")
    with pytest.raises(UsageError, match="llama has no field 'voacb'; did you mean vocab"):
        skipway.models.build("llama", voacb=3)
    with pytest.raises(CheckpointError, match="a llama with the scheme rezero has no checkpoint format"):
        skipway.models.save(skipway.models.build("llama", scheme="rezero"), "nowhere")


# Faults: each contract above sees one that is planted.


def _joins(model: nn.Module) -> list[nn.Module]:
    return [j for j in model.modules() if isinstance(getattr(j, "scheme", None), schemes.Scheme) and hasattr(j, "branch")]


def _nudged(model: nn.Module) -> None:
    """A part in a million on one channel of what one branch adds: a change that no norm takes out."""
    scheme: Any = _joins(model)[1].scheme
    write = scheme.write
    scheme.write = lambda stream, y, memo: write(stream, y * torch.linspace(1, 1 + 1e-6, y.shape[-1]).to(y), memo)


def _coarse(model: nn.Module) -> None:
    """The stream keeps 5 bits behind every site, bfloat16 has 8."""
    def kept(write: Callable[..., Any], stream: Any, y: torch.Tensor, memo: Any) -> Any:
        new = write(stream, y, memo)
        step = 2.0 ** (new.float().abs().clamp(min=1e-30).log2().floor() - 4)
        return ((new / step).round() * step).to(new.dtype)
    for join in _joins(model):
        scheme: Any = join.scheme
        scheme.write = functools.partial(kept, scheme.write)


def _detached(model: nn.Module) -> None:
    """The shortcut of one site gives no gradient; lanes carry it in the memo."""
    scheme: Any = _joins(model)[1].scheme
    write = scheme.write
    scheme.write = lambda stream, y, memo: write(stream.detach(), y, memo and tuple(t.detach() for t in memo))


@pytest.mark.parametrize(("name", "case"), FIRST)
def test_planted_faults_are_seen(name: str, case: m.Case, folder: Folder, tmp_path: pathlib.Path) -> None:
    theirs, home = folder(name, case)
    ours = skipway.models.load(home)
    _nudged(ours)
    assert compared(case, theirs, ours, tmp_path, False, False)[0] > 1e-10
    ours = skipway.models.load(home)
    _detached(ours)
    apart, gradient, _ = compared(case, theirs, ours, tmp_path, False, False)
    assert apart <= 1e-10 < 1e-8 < gradient
    ours = skipway.models.load(home)
    _coarse(ours)
    assert farther(*rounded(case, theirs, ours)) > 3
    swapped = type(ours)(ours.config, "rezero").double().eval()
    assert m.wired(skipway.check(swapped, **m.drawn(case)).wiring) != m.wired(skipway.check(theirs, **m.drawn(case)).wiring)
