"""Where a rewired model has to work as the model did: compiled, exported, checkpointed, under autocast, generating, with its Trainer, in parallel."""

import pathlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import skipway
from skipway.surgery import Edit

from ..two_processes import compare, trained
from .conftest import Small, gradients

transformers = pytest.importorskip("transformers")

TINY = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2}
PLAIN = {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("AutoModelForCausalLM", TINY),                                            # joins in the block
    "gpt2": ("AutoModelForCausalLM", {**PLAIN, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "bert": ("AutoModel", TINY),                                                        # joins in output modules
    "albert": ("AutoModel", {**TINY, "embedding_size": 16}),                            # one module for all depths
    "bloom": ("AutoModelForCausalLM", {**PLAIN, "hidden_size": 32, "n_layer": 2, "n_head": 4}),     # joins inside attention
    "t5": ("AutoModelForSeq2SeqLM", {**PLAIN, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0,
                                       "dropout_rate": 0.0}),
    "gptj": ("AutoModelForCausalLM", {**PLAIN, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),  # parallel, one site
    "gpt_neox": ("AutoModelForCausalLM", TINY),                                         # parallel, sum of three
    "falcon": ("AutoModelForCausalLM", {**PLAIN, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}),
}
CAUSAL = [n for n, (kind, _) in MODELS.items() if kind != "AutoModel"]


def build(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    kind, options = MODELS[name]
    model: nn.Module = getattr(transformers, kind).from_config(transformers.AutoConfig.for_model(name, **options))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    inputs = {"input_ids": torch.randint(3, 99, (2, 7), generator=torch.Generator().manual_seed(1))}
    if kind == "AutoModelForSeq2SeqLM":
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :5]
    return model.eval(), inputs


def rewired(name: str) -> tuple[nn.Module, dict[str, Tensor], Edit]:
    """With a learned vector on the first branch of each stream and a constant on the others."""
    model, inputs = build(name)
    rewiring = skipway.rewire(model, **inputs)
    streams = tuple(dict.fromkeys(n for n, main, _ in rewiring.listed if main))
    plan: Any = rewiring
    for stream in streams:
        plan = plan.sites(0, stream=stream).layer_scale(0.5).sites(slice(1, None), stream=stream).scale(branch=0.25)
    edit = plan.apply()
    torch.manual_seed(2)
    for p in edit.parameters():
        p.data.normal_()
    return model, inputs, edit


def run(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """First output and all gradients of a weighted sum."""
    model.zero_grad()
    out = model(**inputs, use_cache=False)[0] if "use_cache" in vars(model.config) else model(**inputs)[0]     # type: ignore[operator]
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    return out.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled_whole(name: str) -> None:
    model, inputs, _ = rewired(name)
    want = run(model, inputs)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    model.zero_grad()
    out = compiled(**inputs)[0]
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    torch.testing.assert_close(out, want[0], rtol=1e-5, atol=1e-5)
    for n, g in want[1].items():
        torch.testing.assert_close(model.get_parameter(n).grad, g, rtol=1e-4, atol=1e-5)
    other = {k: v[:1, :4].repeat(3, 1) for k, v in inputs.items()}
    torch.testing.assert_close(compiled(**other)[0], model(**other)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", [n for n in MODELS if n != "albert"])      # which transformers does not checkpoint
def test_activation_checkpointing(name: str, reentrant: bool) -> None:
    model, inputs, edit = rewired(name)
    model.train()
    want = run(model, inputs)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})                   # type: ignore[operator]
    got = run(model, inputs)
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-6)          # T5 itself rounds otherwise when it is checkpointed
    assert got[1].keys() == want[1].keys()
    for n, g in want[1].items():
        torch.testing.assert_close(got[1][n], g, rtol=1e-5, atol=1e-6)
    assert any("skip_" in n for n in want[1])
    edit.undo()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_forgets_the_frame_is_seen(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: without the frame the second run adds as the model does, and gradients are wrong."""
    from skipway.surgery import _checkpoints
    model, inputs, _ = rewired("llama")
    model.train()
    want = run(model, inputs)
    monkeypatch.setattr(_checkpoints, "_with_frame", lambda function: function)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})                   # type: ignore[operator]
    try:
        got = run(model, inputs)
        assert any(n not in got[1] or not torch.allclose(got[1][n], g, rtol=1e-3) for n, g in want[1].items())
    except torch.utils.checkpoint.CheckpointError:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_autocast(name: str) -> None:
    model, inputs = build(name)
    with torch.autocast("cpu", torch.bfloat16):
        want = model(**inputs)[0]
        skipway.rewire(model, **inputs).sites().scale(branch=1.0, skip=1.0).apply()
        assert torch.equal(model(**inputs)[0], want)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSAL)
def test_generate_with_a_cache(name: str) -> None:
    model, inputs, _ = rewired(name)
    ids = inputs["input_ids"]
    with torch.no_grad():
        some = model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, use_cache=True)     # type: ignore[operator]
        same = model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, use_cache=False)    # type: ignore[operator]
    assert torch.equal(some, same)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_export(name: str) -> None:
    model, inputs, _ = rewired(name)
    want = model(**inputs)[0]
    model.config.use_cache = False                                         # a cache is no type that export knows
    program = torch.export.export(model, (), inputs)
    assert torch.equal(program.module()(**inputs)[0], want)


class Nth(TorchFunctionMode):
    """Takes the n-th add of two states and gives one of its operands."""

    def __init__(self, n: int, shape: tuple[int, ...], give: int) -> None:
        super().__init__()
        self.n, self.shape, self.give, self.seen = n, shape, give, -1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "add" and len(args) == 2 and all(isinstance(a, Tensor) and a.shape == self.shape for a in args):
            self.seen += 1
            if self.seen == self.n:
                return args[self.give]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("site", [0, 1, 2, 3])
def test_one_depth_of_a_shared_module(site: int) -> None:
    model, inputs = build("albert")
    attends = site % 2 == 0                                 # input + attention, but ffn + input
    with Nth(site, (2, 7, 32), 1 if attends else 0):
        want = model(**inputs)[0]
    edit = skipway.rewire(model, **inputs).sites(site).ablate().apply()
    assert torch.equal(model(**inputs)[0], want)
    assert torch.equal(model(**inputs)[0], want)            # the calls are counted anew
    edit.undo()
    assert not torch.equal(model(**inputs)[0], want)


@pytest.mark.slow
def test_the_trainer_saves_loads_and_goes_on(tmp_path: pathlib.Path) -> None:
    ids = torch.randint(3, 99, (64, 8), generator=torch.Generator().manual_seed(4))
    rows = [{"input_ids": row, "labels": row} for row in ids]

    def train(steps: int, folder: str, resume: bool) -> tuple[list[float], nn.Module]:
        model, _, _ = rewired("llama")
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path / folder), max_steps=steps, per_device_train_batch_size=4, logging_steps=1, save_steps=25, seed=0,
            report_to=[], use_cpu=True, lr_scheduler_type="constant", disable_tqdm=True)
        trainer = transformers.Trainer(model=model, args=options, train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume or None)
        return [e["loss"] for e in trainer.state.log_history if "loss" in e], model
    whole, model = train(50, "whole", False)
    train(25, "parts", False)
    parts, again = train(50, "parts", True)
    assert len(whole) == 50 and whole[-1] < whole[0]
    assert parts == whole
    for (n, a), b in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), n
    edit = Edit.of(model)
    assert edit is not None
    edit.save(tmp_path / "edit.safetensors")
    model.save_pretrained(tmp_path / "model")                               # type: ignore[operator]
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    skipway.reapply(loaded, tmp_path / "edit.safetensors")
    assert torch.equal(loaded(ids[:2]).logits, model(ids[:2]).logits)


@pytest.mark.slow
def test_replicas_and_shards_on_two_processes(tmp_path: pathlib.Path) -> None:
    names = ("layer_scale", "lanes")
    found = trained(pathlib.Path(__file__).with_name("distributed_worker.py"), tmp_path, names)
    assert all(curves["whole"][-1] < curves["whole"][0] for curves in found.values())
    compare(found, names)


def test_vmap_and_functional_call(small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites().layer_scale(0.5).apply()
    want = gradients(small, ids)
    named = dict(small.named_parameters())

    def loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(small, parameters, (one.unsqueeze(0),)).sum()
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(named, ids)
    small.zero_grad()
    small(ids).sum().backward()
    for n, p in small.named_parameters():
        torch.testing.assert_close(each[n].sum(0), p.grad, rtol=1e-4, atol=1e-5)
    edit.undo()
    assert want[0].shape == (2, 6, 11)
