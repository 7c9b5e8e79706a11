"""Rotary frequencies, scaled in every way, are those of transformers."""

from typing import Any

import pytest
import torch

from skipway.nn import Rotary

transformers = pytest.importorskip("transformers")
from transformers import LlamaConfig  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

HEAD, THETA = 64, 500000.0


@pytest.mark.parametrize(("scaling", "theirs"), [
    ({"kind": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ({"kind": "llama3", "factor": 8.0, "low": 1.0, "high": 4.0, "original": 8192},
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    ({"kind": "yarn", "factor": 4.0, "original": 4096}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}),
    ({"kind": "yarn", "factor": 40.0, "original": 4096, "beta_fast": 24.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False},
     {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 24.0, "beta_slow": 2.0, "attention_factor": 1.3,
      "truncate": False})], ids=lambda v: v.get("kind", ""))
def test_frequencies(scaling: dict[str, Any], theirs: dict[str, Any]) -> None:
    config = LlamaConfig(hidden_size=HEAD * 2, num_attention_heads=2, head_dim=HEAD, max_position_embeddings=16384,
                         rope_parameters={"rope_theta": THETA, **theirs})
    want, amplitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, torch.device("cpu"))
    mine = Rotary(HEAD, theta=THETA, scaling=scaling)
    torch.testing.assert_close(mine.frequencies, want, rtol=1e-5, atol=0)
    assert mine.amplitude == pytest.approx(amplitude)


def test_llama_attention() -> None:
    """A whole attention with groups of keys and rotary positions, weights copied across."""
    from transformers.models.llama.modeling_llama import LlamaModel

    from skipway.nn import Encoder
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=11, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         attn_implementation="eager", rope_parameters={"rope_theta": 100.0, "rope_type": "default"})
    theirs = LlamaModel(config).double().eval()
    mine = Encoder(32, 4, 2, 48, causal=True, attention={"kv_heads": 2, "bias": False, "rotary": {"theta": 100.0}},
                   feed_forward={"kind": "swiglu", "bias": False}, norm=lambda d: torch.nn.RMSNorm(d, eps=config.rms_norm_eps)).double()
    with torch.no_grad():
        for k, block in enumerate(theirs.layers):
            attend, feed = mine.layers[2 * k], mine.layers[2 * k + 1]
            for own, other in ((attend.branch.query, block.self_attn.q_proj), (attend.branch.key, block.self_attn.k_proj),
                               (attend.branch.value, block.self_attn.v_proj), (attend.branch.output, block.self_attn.o_proj),
                               (feed.branch.gate, block.mlp.gate_proj), (feed.branch.input, block.mlp.up_proj),
                               (feed.branch.output, block.mlp.down_proj), (attend.scheme.norm, block.input_layernorm),
                               (feed.scheme.norm, block.post_attention_layernorm)):
                own.weight.copy_(other.weight)
        mine.final_norm.weight.copy_(theirs.norm.weight)
        ids = torch.randint(0, 11, (2, 9))
        torch.testing.assert_close(mine(theirs.embed_tokens(ids)), theirs(input_ids=ids).last_hidden_state, rtol=1e-6, atol=1e-7)
