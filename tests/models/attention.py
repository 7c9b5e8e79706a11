"""Look-alikes made of attention: wrappers, latents, decoders, long skips, adapters, sharing."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import DIM, Attention, Block, FeedForward, LookAlike, RMSNorm, Trunk, tokens

PRE = ["self_attention pre", "ffn pre"]
POST = ["self_attention post", "ffn post"]


def sublayer_wrappers() -> LookAlike:
    """Norm, branch and add sit in a wrapper class per sublayer, and the block is a list of wrappers (T5)."""

    class Sublayer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.layer_norm, self.inner, self.dropout = RMSNorm(), inner, nn.Dropout(0.1)

        def forward(self, hidden: Tensor) -> tuple[Tensor]:
            return (hidden + self.dropout(self.inner(self.layer_norm(hidden))),)

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, DIM)
            self.block = nn.ModuleList([nn.ModuleList([Sublayer(Attention()), Sublayer(FeedForward())]) for _ in range(2)])
            self.final_layer_norm, self.lm_head = RMSNorm(), nn.Linear(DIM, 20, bias=False)

        def forward(self, ids: Tensor) -> Tensor:
            hidden = self.embed(ids)
            for block in self.block:
                for sublayer in block:
                    (hidden,) = sublayer(hidden)
            return self.lm_head(self.final_layer_norm(hidden) * DIM**-0.5)

    return LookAlike(Stack(), (torch.arange(12).view(2, 6),), PRE * 2)


def siamese_encoder() -> LookAlike:
    """One encoder is called on two inputs: shared modules, no shared depth."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Trunk(Block(), Block()), nn.Linear(12, 1)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            a, b = self.encoder(left).mean(1), self.encoder(right).mean(1)
            return self.head(torch.cat([a, b, (a - b).abs()], -1))

    return LookAlike(Siamese(), (tokens(), tokens().flip(1)), PRE * 4)


def shared_layers() -> LookAlike:
    """One post-norm layer runs four times, and the configuration says so (ALBERT)."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.ffn, self.norm1, self.norm2 = Attention(), FeedForward(), nn.LayerNorm(DIM), nn.LayerNorm(DIM)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.ffn(x))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(num_hidden_layers=4, num_hidden_groups=1)
            self.stem, self.layer = nn.Linear(DIM, DIM), Layer()

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for _ in range(self.config.num_hidden_layers):
                x = self.layer(x)
            return x

    return LookAlike(Encoder(), (tokens(),), POST * 4)


def latents_read_an_input() -> LookAlike:
    """Latents of another length read the input by cross-attention; input and latents have norms of their own (Perceiver)."""

    class Perceiver(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Linear(DIM, DIM)
            self.norm_latent, self.norm_input, self.cross = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention()
            self.norm_ffn, self.ffn = nn.LayerNorm(DIM), FeedForward()
            self.blocks, self.norm, self.head = nn.Sequential(Block(), Block()), nn.LayerNorm(DIM), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            z = self.latents(F.adaptive_avg_pool1d(x.transpose(1, 2), 3).transpose(1, 2))
            z = z + self.cross(self.norm_latent(z), self.norm_input(x))
            z = z + self.ffn(self.norm_ffn(z))
            return self.head(self.norm(self.blocks(z)).mean(1))

    return LookAlike(Perceiver(), (tokens(length=9),), ["cross_attention pre", "ffn pre", *PRE * 2])


def query_positions() -> LookAlike:
    """Positions go into query and key at every attention and never into the stream (DETR): the branch reads more than the shortcut."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.cross, self.ffn = Attention(), Attention(), FeedForward()
            self.norm1, self.norm2, self.norm3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)

        def forward(self, x: Tensor, memory: Tensor, query_pos: Tensor, pos: Tensor) -> Tensor:
            q = x + query_pos
            x = self.norm1(x + self.attn.attend(q, q, x))
            x = self.norm2(x + self.cross.attend(x + query_pos, memory + pos, memory))
            return self.norm3(x + self.ffn(x))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory, self.target = nn.Sequential(nn.Linear(DIM, DIM), nn.LayerNorm(DIM)), nn.Linear(DIM, DIM)
            self.query_pos, self.pos = nn.Parameter(torch.randn(4, DIM)), nn.Parameter(torch.randn(6, DIM))
            self.layers, self.boxes = nn.ModuleList([Layer(), Layer()]), nn.Linear(DIM, 4)

        def forward(self, target: Tensor, source: Tensor) -> Tensor:
            x, memory = self.target(target), self.memory(source)
            for layer in self.layers:
                x = layer(x, memory, self.query_pos, self.pos)
            return self.boxes(x).sigmoid()

    sites = ["self_attention post", "cross_attention post", "ffn post"] * 2
    return LookAlike(Decoder(), (tokens(length=4), tokens(length=6)), sites)


def attention_pooling() -> LookAlike:
    """The head pools with a learned probe and has a residual of its own, off the trunk (MAP head)."""

    class MapHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.probe, self.attn = nn.Parameter(torch.randn(1, 1, DIM)), Attention()
            self.norm, self.ffn, self.out = nn.LayerNorm(DIM), FeedForward(), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.attn(self.probe.expand(x.size(0), -1, -1), x)
            x = x + self.ffn(self.norm(x))
            return self.out(x[:, 0])

    net = Trunk(Block(), Block())
    net.head = MapHead()
    return LookAlike(net, (tokens(),), PRE * 2)


def concatenated_long_skips() -> LookAlike:
    """Early states join late ones by concatenation and a fusing linear, which stands on the stream (U-ViT)."""

    class UVit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.into, self.middle, self.outof = nn.Linear(DIM, DIM), Block(), Block(), Block()
            self.fuse, self.norm, self.head = nn.Linear(2 * DIM, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, DIM)

        def forward(self, x: Tensor) -> Tensor:
            early = self.into(self.stem(x))
            late = self.middle(early)
            return self.head(self.norm(self.outof(self.fuse(torch.cat([late, early], -1)))))

    return LookAlike(UVit(), (tokens(),), PRE * 3)


def low_rank_adapters() -> LookAlike:
    """`W x + B A x` inside projections is a sum of two branches, not a join (LoRA)."""

    class Lora(nn.Module):
        def __init__(self, base: nn.Linear, rank: int = 2) -> None:
            super().__init__()
            self.base, self.scaling = base, 2.0
            self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.b(self.a(x)) * self.scaling

    blocks = [Block(), Block()]
    for block in blocks:
        block.attn.q, block.attn.v = Lora(block.attn.q), Lora(block.attn.v)
        block.ffn.down = Lora(block.ffn.down)
    return LookAlike(Trunk(*blocks), (tokens(),), PRE * 2)


def modulated_by_a_condition() -> LookAlike:
    """Shift, scale and a zero-initialised gate come from a condition (adaLN-Zero of DiT); the norms have no weights."""

    class DitBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(DIM, elementwise_affine=False) for _ in range(2))
            self.attn, self.ffn, self.modulation = Attention(), FeedForward(), nn.Linear(DIM, 6 * DIM)
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(c)).unsqueeze(1).chunk(6, -1)
            x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1)
            return x + gate2 * self.ffn(self.norm2(x) * (1 + scale2) + shift2)

    class Dit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.time, self.blocks = nn.Linear(DIM, DIM), nn.Linear(1, DIM), nn.ModuleList([DitBlock(), DitBlock()])
            self.norm, self.head = nn.LayerNorm(DIM, elementwise_affine=False), nn.Linear(DIM, DIM)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            c, x = self.time(t), self.stem(x)
            for block in self.blocks:
                x = block(x, c)
            return self.head(self.norm(x))

    return LookAlike(Dit(), (tokens(), torch.rand(2, 1)), PRE * 2)


def parallel_with_query_key_norms() -> LookAlike:
    """Both branches read one norm's output and are summed before the add; queries and keys are normed again (ViT-22B)."""

    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attn, self.ffn = nn.LayerNorm(DIM), Attention(), FeedForward()
            self.q_norm, self.k_norm = RMSNorm(DIM // 2), RMSNorm(DIM // 2)

        def forward(self, x: Tensor) -> Tensor:
            n, a = self.norm(x), self.attn
            q, k, v = self.q_norm(a.split(a.q(n))), self.k_norm(a.split(a.k(n))), a.split(a.v(n))
            y = a.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + (y + self.ffn(n))

    return LookAlike(Trunk(Parallel(), Parallel()), (tokens(),), ["self_attention+ffn pre"] * 2)


def gated_attention_unit() -> LookAlike:
    """Attention and gate in one branch, `out(u * (A v))`: the product is inside the branch (GAU)."""

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.u, self.v = nn.LayerNorm(DIM), nn.Linear(DIM, 32), nn.Linear(DIM, 32)
            self.base, self.out = nn.Linear(DIM, 8), nn.Linear(32, DIM)
            self.gain, self.bias = nn.Parameter(torch.ones(2, 8)), nn.Parameter(torch.zeros(2, 8))

        def forward(self, x: Tensor) -> Tensor:
            n = self.norm(x)
            z = F.silu(self.base(n))
            q, k = z * self.gain[0] + self.bias[0], z * self.gain[1] + self.bias[1]
            weights = torch.relu(q @ k.transpose(1, 2) / 8).square()
            return x + self.out(F.silu(self.u(n)) * (weights @ F.silu(self.v(n))))

    return LookAlike(Trunk(Unit(), Unit()), (tokens(),), ["self_attention pre"] * 2)


def experts_with_a_shared_one() -> LookAlike:
    """Routed experts and a shared expert are summed before the add; routing weights are normalised."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.shared = nn.Linear(DIM, 3, bias=False), FeedForward()
            self.experts = nn.ModuleList([FeedForward() for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            top, index = self.router(x).softmax(-1).topk(2, -1)
            weight = torch.zeros_like(x[..., :3]).scatter(-1, index, top / top.sum(-1, keepdim=True))
            routed = torch.stack([e(x) for e in self.experts], -1) @ weight.unsqueeze(-1)
            return self.shared(x) + routed.squeeze(-1)

    blocks = [Block(), Block()]
    for block in blocks:
        block.ffn = Experts()
    return LookAlike(Trunk(*blocks), (tokens(),), ["self_attention pre", "moe pre"] * 2)


def values_around_a_first_layer() -> LookAlike:
    """The first layer changes the width and has no skip; its attention adds a convolution of its own values (SAN-M)."""

    class Memory(Attention):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(width, DIM) for _ in range(3))
            self.conv = nn.Conv1d(DIM, DIM, 3, padding=1, groups=DIM)

        def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
            q, k, v = self.q(x), self.k(x), self.v(x)
            y = F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v))
            return self.o(y.transpose(1, 2).flatten(2)) + (self.conv(v.mT).mT + v)

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.attn, self.norm2, self.ffn = nn.LayerNorm(width), Memory(width), nn.LayerNorm(DIM), FeedForward()
            self.same = width == DIM

        def forward(self, x: Tensor) -> Tensor:
            y = self.attn(self.norm1(x))
            x = x + y if self.same else y
            return x + self.ffn(self.norm2(x))

    net = nn.Sequential(*[Layer(w) for w in (3, DIM, DIM)], nn.LayerNorm(DIM), nn.Linear(DIM, 3))
    return LookAlike(net, (tokens(dim=3),), None)


def patches_of_its_own_stream() -> LookAlike:
    """Bytes are pooled to patches, a second transformer runs on those, and the bytes attend to them (BLT)."""

    class Bytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.encoder, self.pool = nn.Linear(DIM, DIM), Block(), nn.Linear(DIM, DIM)
            self.patches = nn.ModuleList(Block() for _ in range(3))
            self.reads, self.norms = nn.ModuleList(Attention() for _ in range(2)), nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
            self.decoder, self.norm, self.head = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(DIM), nn.Linear(DIM, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.encoder(self.stem(x))
            p = self.pool(x.unflatten(1, (-1, 2)).amax(2))
            for block in self.patches:
                p = block(p)
            for norm, read, block in zip(self.norms, self.reads, self.decoder):
                x = block(x + read(norm(x), p))
            return self.head(self.norm(x))

    return LookAlike(Bytes(), (tokens(),), PRE + ["cross_attention pre", *PRE] * 2 + PRE * 3)
