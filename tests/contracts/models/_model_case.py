"""How a file of this folder describes the reference of one architecture, and what is made of it.

Each file holds CASES, dictionaries with

    id              name of the case, short
    config, model   names of transformers' classes; kwargs of the configuration: small, dropout 0
    inputs          "tokens", "pair" (encoder and decoder) or "images"
    more            further inputs of tokens: {"token_type_ids": 2} draws them below 2
    output          field of the reference's output that is compared: with ours `logits` for "logits", else with `hidden`
    extras          fields of the reference's output that our `extras` begin with
    masked          whether it takes padding masks (default: all but images)
    attention       attn_implementation (default "sdpa"; None: it has no attention); experts: experts_implementation
    truth           id of the entry of ../shared/truth/wirings.json that reads the wiring of this architecture
    seeds           how many inputs the comparison in bfloat16 takes

PLACEMENTS maps the placement of a scheme to the one that its sites have, where branches own norms at their ends. And, where a published size has
parameters that the class of its config.json does not count, BESIDE: {size: how many}.
"""

import copy
import importlib.util
import json
import pathlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import skipway

HERE = pathlib.Path(__file__).parent
TRUTH = pathlib.Path(__file__).parents[4] / "shared" / "truth"

Case = dict[str, Any]
Inputs = dict[str, Tensor]


def described(name: str) -> ModuleType:
    """The file of an architecture."""
    return _loaded(HERE / f"{name}.py", f"model_case_{name}")


def _loaded(file: pathlib.Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shake(model: nn.Module, seed: int = 1, size: float = 0.1) -> None:
    """Moves every parameter and statistic off its start, so that no bias is zero and no gain one."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in (p for p in model.parameters() if p.requires_grad):
            p.add_(size * torch.randn(p.shape, generator=made, dtype=torch.float64).to(p.dtype))
        for name, b in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                b.add_(0.5 * torch.rand(b.shape, generator=made, dtype=torch.float64).to(b.dtype))
            elif name.endswith(("final_logits_bias", "e_score_correction_bias")):
                b.add_(torch.randn(b.shape, generator=made, dtype=torch.float64).to(b.dtype))


def reference(case: Case, folder: pathlib.Path, dtype: torch.dtype = torch.float64) -> nn.Module:
    """transformers' model with random weights that are numbers of bfloat16, as read back from the folder that it is written to."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = getattr(transformers, case["config"])(**case["kwargs"])
    model = getattr(transformers, case["model"])(config)
    shake(model)
    fixed = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}         # tables of waves
    model.to(torch.bfloat16).to(dtype)
    with torch.no_grad():
        for n, p in fixed.items():
            model.get_parameter(n).copy_(p)
    model.save_pretrained(folder)
    return read(case, folder, dtype)


def read(case: Case, folder: pathlib.Path, dtype: torch.dtype | str = "auto") -> nn.Module:
    """What transformers reads from a folder."""
    import transformers
    more = {"experts_implementation": case["experts"]} if "experts" in case else {}
    kind = getattr(transformers, case["model"])
    how = case.get("attention", "sdpa")
    made: nn.Module = kind.from_pretrained(folder, dtype=dtype, **({} if how is None else {"attn_implementation": how}), **more)
    return made.eval()


def drawn(case: Case, seed: int = 0, masked: bool = False, kwargs: Case | None = None, dtype: torch.dtype = torch.float64) -> Inputs:
    """Random inputs of a case; masked: the second sample ends in padding."""
    g = torch.Generator().manual_seed(seed)
    told = case["kwargs"] if kwargs is None else kwargs
    if case["inputs"] == "images":
        side = told.get("image_size", 64)
        return {"pixel_values": torch.randn(2, told.get("num_channels", 3), side, side, generator=g, dtype=torch.float64).to(dtype)}
    vocab = told.get("vocab_size", 99)
    made = {"input_ids": torch.randint(3, vocab, (2, 17), generator=g)}
    for name, below in case.get("more", {}).items():
        made[name] = torch.randint(0, below, (2, 17), generator=g)
    if masked:
        made["attention_mask"] = torch.ones(2, 17, dtype=torch.long)
        made["attention_mask"][1, 12:] = 0
    if case["inputs"] == "pair":
        made["decoder_input_ids"] = torch.randint(3, vocab, (2, 11), generator=g)
        if masked:
            made["decoder_attention_mask"] = torch.ones(2, 11, dtype=torch.long)
            made["decoder_attention_mask"][1, 7:] = 0
    return made


def real(inputs: Inputs, y: Tensor) -> Tensor:
    """What counts of an output: (tokens, ...) of the real tokens."""
    mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    return y if mask is None or y.shape[:2] != mask.shape else y[mask.bool()]


def outputs(case: Case, model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """What is compared: of the reference, or of ours."""
    own = isinstance(model, skipway.models.Model)
    out = model(**inputs)
    named = case.get("output", "logits")
    if not own:
        return [real(inputs, out[name].flatten(1) if out[name].ndim > 3 else out[name]) for name in (named, *case.get("extras", ()))]
    first = out.logits if named in ("logits", "prediction_logits") else out.hidden
    return [real(inputs, y) for y in (first, *out.extras[:len(case.get("extras", ()))])]


def distance(a: Tensor, b: Tensor, least: float = 0.0) -> float:
    """Largest difference relative to the largest element of b, or to `least` where that is more."""
    a, b = a.detach().double(), b.detach().double()
    size = max(float(b.abs().max()), least)
    return float((a - b).abs().max()) / size if size > 0 else float(a.abs().max())


def gradients(case: Case, model: nn.Module, inputs: Inputs) -> None:
    """Gradients of a fixed mixture of all outputs, left on the parameters."""
    model.zero_grad()
    total = sum((y * torch.linspace(-3, 3, y.numel(), dtype=y.dtype).reshape(y.shape).cos()).sum() for y in outputs(case, model, inputs))
    assert isinstance(total, Tensor)
    total.backward()


def as_weights(model: nn.Module, folder: pathlib.Path) -> skipway.models.Model:
    """Our model whose weights are the gradients of the reference: they go the way of weights through a folder, so no second list of names."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p, source in zip(other.parameters(), model.parameters(), strict=True):
            p.copy_(torch.zeros_like(p) if source.grad is None else source.grad)
    other.save_pretrained(folder)                           # type: ignore[operator]
    return skipway.models.load(folder)


def wired(wiring: Any) -> list[tuple[int, bool, list[tuple[Any, ...]]]]:
    """Of each main stream: lanes, whether it ends in a norm, and of each site placement, norm, kinds of branches, whether they are parallel, and the
    branch's scale."""
    return [(s.lanes, s.final_norm is not None,
             [(t.placement, t.norm, sorted(b.kind for b in t.branches), t.parallel, t.scale) for t in s.sites]) for s in wiring.streams if s.main]


def readings() -> dict[str, Any]:
    """Wirings that were read by hand, by id; empty without them."""
    file = TRUTH / "wirings.json"
    return {e["id"]: e for e in json.loads(file.read_text())} if file.exists() else {}


def read_by_hand(entry: Any) -> tuple[nn.Module, Inputs]:
    """The model of a reading, and its inputs."""
    made: tuple[nn.Module, Inputs] = _loaded(TRUTH / "build.py", "shared_truth_build").build(entry)
    return made


def joined_by_scheme(site: Any) -> bool:
    """Whether a site's shortcut is the stream itself: where a residual network changes its width, a projection stands in its place."""
    return site.shortcut != "projection"
