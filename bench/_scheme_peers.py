"""Public modules of the same residual rules, put around the branches and norms of the benchmark. What is not installed is left out, and said so.

A peer is a module (batch, token, dim) -> the same; `PEERS` gives for each of our schemes (with its options) the peers of it.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Make = Callable[[list[nn.Module], int], nn.Module]


class _Peer(nn.Module):
    """Branches behind a norm each, and the peer's own modules, one for each branch."""

    def __init__(self, branches: list[nn.Module], dim: int, make: Callable[[int], nn.Module | None]) -> None:
        super().__init__()
        self.branches, self.norms = nn.ModuleList(branches), nn.ModuleList(nn.LayerNorm(dim) for _ in branches)
        self.rules = nn.ModuleList(m for k in range(len(branches)) if (m := make(k)) is not None)
        self.final_norm = nn.LayerNorm(dim)


class _LucidHyper(_Peer):
    """hyper-connections: the stream is ((batch lane), token, dim)."""

    def __init__(self, branches: list[nn.Module], dim: int, kind: str) -> None:
        import hyper_connections as h
        from hyper_connections.manifold_constrained_hyper_connections import ManifoldConstrainedHyperConnections

        rule = h.HyperConnections if kind == "hyper" else ManifoldConstrainedHyperConnections
        super().__init__(branches, dim, lambda k: rule(4, dim=dim, layer_index=k))
        self.expand, self.reduce = rule.get_expand_reduce_stream_functions(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.expand(x)
        for rule, norm, branch in zip(self.rules, self.norms, self.branches):
            inner, add = rule(x)
            x = add(branch(norm(inner)))
        return self.final_norm(self.reduce(x))              # type: ignore[no-any-return]


class _XHyper(_Peer):
    """x-transformers: HyperConnection and GatedMultiResidual, a prepare and a forward."""

    def __init__(self, branches: list[nn.Module], dim: int, kind: str) -> None:
        from x_transformers import x_transformers as x

        options = {"num_residual_streams": 4, **({"sinkhorn_iters": 20} if kind == "mhc" else {"read_gate_rank": dim // 8})}
        rule = x.HyperConnection if kind == "mhc" else x.GatedMultiResidual
        super().__init__(branches, dim, lambda k: rule(dim, layer_index=k, **options))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        x = x.repeat_interleave(4, 0)
        for rule, norm, branch in zip(self.rules, self.norms, self.branches):
            inner, kept, more = rule.prepare(x)
            x = rule(branch(norm(inner)), kept, **more)
        return self.final_norm(x.view(b, 4, t, d).sum(1))   # type: ignore[no-any-return]


class _XDepth(_Peer):
    """x-transformers: AttentionResidual over the list of what was made so far."""

    def __init__(self, branches: list[nn.Module], dim: int) -> None:
        from x_transformers.x_transformers import AttentionResidual

        super().__init__(branches, dim, lambda k: AttentionResidual(dim))
        self.last = AttentionResidual(dim)

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for rule, norm, branch in zip(self.rules, self.norms, self.branches):
            made.append(branch(norm(rule(made))))
        return self.final_norm(self.last(made))             # type: ignore[no-any-return]


class _DeepSeek(_Peer):
    """transformers: DeepseekV4HyperConnection (mhc) or HYV4HyperConnection (identity); lanes are (batch, token, lane, dim)."""

    def __init__(self, branches: list[nn.Module], dim: int, kind: str) -> None:
        if kind == "mhc":
            from transformers.models.deepseek_v4 import configuration_deepseek_v4 as c
            from transformers.models.deepseek_v4 import modeling_deepseek_v4 as m

            config: Any = c.DeepseekV4Config(hidden_size=dim)
            rule, head = m.DeepseekV4HyperConnection, m.DeepseekV4HyperHead
        else:
            from transformers.models.hy_v4 import configuration_hy_v4 as c2
            from transformers.models.hy_v4 import modeling_hy_v4 as m2

            config = c2.HYV4Config(hidden_size=dim)
            rule, head = m2.HYV4HyperConnection, m2.HYV4HyperHead
        super().__init__(branches, dim, lambda k: rule(config))
        self.head = head(config)
        for name, p in (*self.rules.named_parameters(), *self.head.named_parameters()):
            nn.init.normal_(p, 0.0, 0.02) if p.dim() > 1 else nn.init.constant_(p, 1.0 if name.endswith("scale") else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(2).expand(-1, -1, 4, -1).contiguous()
        for rule, norm, branch in zip(self.rules, self.norms, self.branches):
            post, *comb, inner = rule(x)
            y = post.unsqueeze(-1) * branch(norm(inner)).unsqueeze(-2)
            x = y + (torch.matmul(comb[0].transpose(-1, -2), x) if comb else x)
        return self.final_norm(self.head(x))                # type: ignore[no-any-return]


class _Qwen(_Peer):
    """transformers: Qwen4ExpTextGatedResidual; lanes are (batch, token, (lane dim)), normed inside the rule."""

    def __init__(self, branches: list[nn.Module], dim: int) -> None:
        from transformers.models.qwen4_exp import configuration_qwen4_exp as c
        from transformers.models.qwen4_exp import modeling_qwen4_exp as m

        config = c.Qwen4ExpTextConfig(hidden_size=dim, hc_lowrank=dim // 8)
        super().__init__(branches, dim, lambda k: m.Qwen4ExpTextGatedResidual(config))
        self.norms, self.last = nn.ModuleList(), m.Qwen4ExpTextGatedResidual(config, use_combine=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.repeat(1, 1, 4)
        for rule, branch in zip(self.rules, self.branches):
            inner, kept, inject = rule(x)
            x = kept + (branch(inner).unsqueeze(-2) * inject.unsqueeze(-1)).flatten(-2)
        return self.last(x)                                 # type: ignore[no-any-return]


class _Inkling(_Peer):
    """transformers: Inkling2BlockAttentionResidual, with a part for each block of two branches."""

    def __init__(self, branches: list[nn.Module], dim: int) -> None:
        from transformers.models.inkling2 import configuration_inkling2 as c
        from transformers.models.inkling2 import modeling_inkling2 as m

        config = c.Inkling2TextConfig(hidden_size=dim)
        config._attn_implementation = "sdpa"
        super().__init__(branches, dim, lambda k: m.Inkling2BlockAttentionResidual(config) if k else None)
        self.last = m.Inkling2BlockAttentionResidual(config)

    def forward(self, x: Tensor) -> Tensor:
        done, part = x.new_zeros(*x.shape[:-1], 0, x.shape[-1]), x
        for k, (norm, branch) in enumerate(zip(self.norms, self.branches)):
            y = branch(norm(self.rules[k - 1](done, part)[0] if k else x))
            if k % 2 == 0:
                done, part = torch.cat([done, part.unsqueeze(-2)], -2), y
            else:
                part = part + y
        return self.final_norm(self.last(done, part)[0])    # type: ignore[no-any-return]


PEERS: dict[str, dict[str, Make]] = {
    "hyper dynamic": {"hyper-connections": lambda b, d: _LucidHyper(b, d, "hyper")},
    "mhc": {"hyper-connections mHC": lambda b, d: _LucidHyper(b, d, "mhc"), "x-transformers HyperConnection": lambda b, d: _XHyper(b, d, "mhc"),
            "transformers deepseek_v4": lambda b, d: _DeepSeek(b, d, "mhc")},
    "identity_hyper": {"transformers hy_v4": lambda b, d: _DeepSeek(b, d, "identity")},
    "gated_residual": {"transformers qwen4_exp": _Qwen, "x-transformers GatedMultiResidual": lambda b, d: _XHyper(b, d, "gated")},
    "attention_residual": {"x-transformers AttentionResidual": _XDepth},
    "block_attention_residual": {"transformers inkling2": _Inkling},
}


def peers(scheme: str, branches: Callable[[], list[nn.Module]], dim: int) -> dict[str, nn.Module]:
    """The peers of a scheme that are installed, by name."""
    made = {}
    for name, make in PEERS.get(scheme, {}).items():
        try:
            made[name] = make(branches(), dim)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return made
