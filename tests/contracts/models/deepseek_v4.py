"""DeepSeek V4.

transformers makes the gates of the lanes, the norms of queries and the turn of positions in float32 by `.float()`, whatever the model is of, and
keeps the weights of norms and gates in float32; while its model runs here, `.float()` leaves float64 as it is, and a model that is read as float64 is
that as a whole.
"""

import importlib.util
from typing import Any

import torch

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "moe_intermediate_size": 24, "num_attention_heads": 4, "head_dim": 32, "q_lora_rank": 20,
         "vocab_size": 99,
         "n_routed_experts": 6, "num_experts_per_tok": 2, "o_groups": 2, "o_lora_rank": 12, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 2,
         "sliding_window": 5, "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}, "partial_rotary_factor": 0.25,
         "max_position_embeddings": 64,
         "layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
         "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"]}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 16}
COMMON = {"config": "DeepseekV4Config", "inputs": "tokens", "attention": "eager", "experts": "eager"}
NARROW = torch.Tensor.float


def kept_wide(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self if self.dtype == torch.float64 else NARROW(self, *args, **kwargs)


if importlib.util.find_spec("transformers") is not None:
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4
    PLAIN = v4.DeepseekV4Model.forward

    def wide(self: Any, *args: Any, **kwargs: Any) -> Any:
        torch.Tensor.float = kept_wide                      # type: ignore[method-assign]
        try:
            return PLAIN(self, *args, **kwargs)
        finally:
            torch.Tensor.float = NARROW                     # type: ignore[method-assign]

    READ = v4.DeepseekV4PreTrainedModel.from_pretrained.__func__

    def whole(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = READ(cls, *args, **kwargs)
        if made.get_input_embeddings().weight.dtype == torch.float64:
            for p in made.parameters():
                p.data = p.data.double()
        return made

    v4.DeepseekV4Model.forward = wide
    v4.DeepseekV4PreTrainedModel.from_pretrained = classmethod(whole)

CASES = [
    {"id": "v4", "model": "DeepseekV4ForCausalLM", "kwargs": {**SMALL, "rope_parameters": YARN}, **COMMON},
    {"id": "bounded", "model": "DeepseekV4ForCausalLM", **COMMON,
     "kwargs": {**SMALL, "swiglu_limit": 0.1, "hc_mult": 2, "hc_sinkhorn_iters": 3, "tie_word_embeddings": True, "mlp_layer_types": ["hash_moe"] * 4,
                "index_topk": 16}},
    {"id": "base", "model": "DeepseekV4Model", "output": "last_hidden_state", **COMMON,
     "kwargs": {**SMALL, "num_hidden_layers": 2, "layer_types": ["compressed_sparse_attention"] * 2, "mlp_layer_types": ["moe"] * 2}},
]
