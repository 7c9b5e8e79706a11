"""Edits of real architectures against the same models edited by hand through their own submodules, to the last bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway.wiring.record import tensors_in

transformers = pytest.importorskip("transformers")

IDS = {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TINY = {**IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
GPT = {**IDS, "n_embd": 32, "n_layer": 2, "n_head": 4}
IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 16, "patch_size": 8}

# Model -> configuration, block, the module inside it whose output meets the shortcut at the block's last join.
MODELS: dict[str, tuple[dict[str, Any], str, str]] = {
    "gpt2": (GPT, "h.1", "mlp"),
    "gpt_neo": ({**IDS, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}, "h.1", "mlp"),
    "llama": (TINY, "layers.1", "mlp"),
    "mistral": ({**TINY, "num_key_value_heads": 2}, "layers.1", "mlp"),
    "gemma": ({**TINY, "num_key_value_heads": 2, "head_dim": 8}, "layers.1", "mlp"),
    "gemma2": ({**TINY, "num_key_value_heads": 2, "head_dim": 8}, "layers.1", "post_feedforward_layernorm"),
    "qwen2": ({**TINY, "num_key_value_heads": 2}, "layers.1", "mlp"),
    "qwen3": ({**TINY, "num_key_value_heads": 2, "head_dim": 8}, "layers.1", "mlp"),
    "olmo": (TINY, "layers.1", "mlp"),
    "olmo2": (TINY, "layers.1", "post_feedforward_layernorm"),
    "stablelm": ({**TINY, "num_key_value_heads": 4}, "layers.1", "mlp"),
    "starcoder2": ({**TINY, "num_key_value_heads": 2}, "layers.1", "mlp"),
    "nemotron": ({**TINY, "num_key_value_heads": 2}, "layers.1", "mlp"),
    "glm": ({**TINY, "num_key_value_heads": 2, "head_dim": 8}, "layers.1", "mlp"),
    "gpt_neox": ({**TINY, "use_parallel_residual": False}, "layers.1", "mlp"),
    "opt": ({**IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32},
            "decoder.layers.1", "fc2"),
    "mixtral": ({**TINY, "num_key_value_heads": 2, "num_local_experts": 2}, "layers.1", "mlp"),
    "granite": ({**TINY, "num_key_value_heads": 2}, "layers.1", "mlp"),
    "bert-generation": (TINY, "encoder.layer.1", "output.dense"),
    "rwkv": ({**IDS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32, "intermediate_size": 48}, "blocks.1", "feed_forward"),
    "mamba": ({**IDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, "layers.1", "mixer"),
    "siglip_vision_model": (IMAGE, "encoder.layers.1", "mlp"),
    "clip_vision_model": (IMAGE, "encoder.layers.1", "mlp"),
    "convnext": ({"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "image_size": 16}, "encoder.stages.1.layers.1", "drop_path"),
}


def build(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **MODELS[name][0])
    model: nn.Module = transformers.AutoModel.from_config(config).eval()
    made = torch.Generator().manual_seed(1)
    if hasattr(config, "vocab_size"):
        return model, {"input_ids": torch.randint(3, 99, (2, 6), generator=made)}
    return model, {"pixel_values": torch.randn(2, 3, 16, 16, generator=made)}


def part(model: nn.Module, path: str) -> tuple[str, nn.Module]:
    """The module at a path, below whatever wraps the stack."""
    found = [(n, m) for n, m in model.named_modules() if n == path or n.endswith("." + path)]
    assert len(found) == 1, [n for n, _ in found]
    return found[0]


def outputs(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return [t.clone() for t in tensors_in(model(**inputs)) if t.is_floating_point()]


def first(out: Any, change: Any) -> Any:
    """A module's output with its first tensor changed."""
    return (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)


def by_hand(model: nn.Module, name: str, action: str, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The model with hooks that its owner could write: on the branch's last module, and on the block."""
    _, block, end = MODELS[name]
    where, holder = part(model, block)
    branch = model.get_submodule(f"{where}.{end}")
    held: list[Tensor] = []
    hooks = []
    if action == "ablate":
        hooks.append(branch.register_forward_hook(lambda m, a, out: held.append(out[0] if isinstance(out, tuple) else out)))
        hooks.append(holder.register_forward_hook(lambda m, a, out: first(out, lambda t: held[-1].view_as(t))))
    else:
        factor = {"drop": 0.0, "scale": 0.5}[action]
        hooks.append(branch.register_forward_hook(lambda m, a, out: first(out, lambda t: t * factor)))
    try:
        return outputs(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_last_join_of_a_block(name: str) -> None:
    model, inputs = build(name)
    outputs(model, inputs)                                  # some rescale their weights once
    where, _ = part(model, MODELS[name][1])
    rewiring = skipway.rewire(model, **inputs)
    last = rewiring.sites(where=lambda s: s.module == where or s.module.startswith(where + "."))
    at, stream = last.spots()[-1].site.index, last.spots()[-1].stream
    for action, options in (("drop", {}), ("scale", {"branch": 0.5}), ("ablate", {})):
        if action == "ablate" and name == "bert-generation":
            continue                                        # its norm follows the join: the block's output is not the branch
        want = by_hand(model, name, action, inputs)
        edit = getattr(rewiring.sites(at, stream=stream, count=1), action)(**options).apply()
        got = outputs(model, inputs)
        edit.undo()
        assert len(got) == len(want) and all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), action
        assert not all(torch.equal(a, b) for a, b in zip(got, outputs(model, inputs), strict=True)), action


def test_there_are_at_least_twenty() -> None:
    assert len(MODELS) >= 20
