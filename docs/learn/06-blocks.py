# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 6. Encoder, decoder and Vision Transformer blocks: where their residuals are
#
# Three kinds of block carry most transformers. This lesson builds each, lets `skipway.trace` find its residuals, and counts them.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %%
torch.manual_seed(0)
dim, heads = 32, 4
x = torch.randn(2, 6, dim)


def table(wiring: skipway.Wiring) -> list[tuple[str, str]]:
    """Kind of branch and placement of the norm at each site, in order of use."""
    return [("+".join(b.kind for b in site.branches), site.placement) for site in wiring.sites]


# %% [markdown]
# ## Encoder block: two residuals
#
# Self-attention, where each token reads all tokens, and a feed-forward network (FFN) for each token by itself. Each is a branch with its own add.

# %%
encoder = skipway.trace(skipway.nn.EncoderBlock(dim, heads), x)
print(encoder.draw())
print(table(encoder))
assert table(encoder) == [("self_attention", "pre"), ("ffn", "pre")], table(encoder)

# %% [markdown]
# ## Decoder block: three residuals
#
# A decoder has one branch more, between those two: **cross-attention**, whose queries come from the decoder's stream and whose keys and values
# come from the encoder's result. It, too, is added to the decoder's stream. The self-attention is *causal*: a token sees only itself and what
# stands before it.

# %%
context = torch.randn(2, 9, dim)
block = skipway.nn.DecoderBlock(dim, heads)
decoder = skipway.trace(block, x, context=context)
print(decoder.draw())
print(table(decoder))
assert table(decoder) == [("self_attention", "pre"), ("cross_attention", "pre"), ("ffn", "pre")], table(decoder)

# %% [markdown]
# By hand, with the block's own parts:

# %%
own, cross, feed = (layer.branch for layer in block.layers)
n1, n2, n3 = (layer.scheme.norm for layer in block.layers)
y = x + own(n1(x))
y = y + cross(n2(y), context=context)
y = y + feed(n3(y))
error = float((y - block(x, context=context)).detach().abs().max())
print(f"three lines beside the block: {error} apart")
assert error == 0.0, error

# %% [markdown]
# The context has another number of tokens (9) than the stream (6). That does not disturb the add: attention returns one row a *query*, and
# queries come from the stream.
#
# ## The same count in PyTorch's own layers
#
# `trace` needs no skipway module. PyTorch's encoder and decoder layers, post-norm by default:

# %%
theirs = {
    "TransformerEncoderLayer": table(skipway.trace(nn.TransformerEncoderLayer(dim, heads, batch_first=True), x)),
    "TransformerDecoderLayer": table(skipway.trace(nn.TransformerDecoderLayer(dim, heads, batch_first=True), x, context)),
}
for name, rows in theirs.items():
    print(name, rows)
assert [len(rows) for rows in theirs.values()] == [2, 3], theirs
assert {placement for rows in theirs.values() for _, placement in rows} == {"post"}, theirs

# %% [markdown]
# ## Vision Transformer: an encoder over patches
#
# A Vision Transformer cuts an image into patches, makes one token of each, puts a class token in front and adds positions. From there on it is
# an encoder. Its blocks have the same two residuals:

# %%
vit = skipway.nn.VisionTransformer(dim=dim, heads=heads, blocks=3, image=32, patch=8, classes=10)
image = torch.randn(2, 3, 32, 32)
seen = skipway.trace(vit, image)
print(seen.draw())
patches = (32 // 8) ** 2
per_block = len(seen.sites) / 3
print(f"{patches} patches and 1 class token; {len(seen.sites)} sites in 3 blocks; tokens: {tuple(vit.tokens(image).shape)}")
assert vit.tokens(image).shape == (2, patches + 1, dim)
assert table(seen) == table(encoder) * 3, table(seen)

# %% [markdown]
# The add of the positions is no site: nothing learned stands between the two operands, so it is not a residual. The stream begins behind it.
#
# ## A whole encoder-decoder has two streams
#
# The transformer of 2017: the encoder's stream ends, and each decoder block reads its end. Residuals never cross from one stream to the other;
# cross-attention does.

# %%
model = skipway.models.build("transformer", size="tiny")
source, target = torch.randint(0, 50, (2, 7)), torch.randint(0, 50, (2, 5))
whole = skipway.trace(model, input_ids=source, decoder_input_ids=target)
counts = {stream.name: len(stream.sites) for stream in whole.streams if stream.main}
blocks = model.config.blocks
print("sites:", counts, " blocks of each:", blocks)
assert counts == {"encoder": 2 * blocks, "decoder": 3 * blocks}, (counts, blocks)

# %% [markdown]
# ## What each branch adds
#
# `skipway.probe` measures each residual on a real batch: the size of what the branch writes beside the size of the stream it joins.

# %%
torch.manual_seed(1)
deep = skipway.nn.Decoder(dim, heads, 6)
rows = skipway.probe(deep, x, context=context).rows
kinds = ("self_attention", "cross_attention", "ffn")
fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
for kind, color, marker in zip(kinds, ("C0", "C2", "C1"), "os^"):
    ax.plot(
        [r.layer for r in rows if r.kind == kind], [r.ratio for r in rows if r.kind == kind], color=color, marker=marker, label=kind.replace("_", "-")
    )
ax.set(xlabel="block", ylabel="branch / stream", title="Size of each branch's write, six decoder blocks, untrained", ylim=(0, None))
ax.legend()
fig

# %%
mean = {kind: sum(r.ratio for r in rows if r.kind == kind) / 6 for kind in kinds}
print({kind: round(value, 3) for kind, value in mean.items()}, "sites:", len(rows))
assert len(rows) == 18, len(rows)
assert all(0.001 < value < 1 for value in mean.values()), mean

# %% [markdown]
# Every branch writes less than the stream already holds: a block *refines* the stream and does not replace it.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "How many residual adds has a decoder block with cross-attention?", "number": len(decoder.sites), "tolerance": 0},
    {"question": "How many residual adds has a Vision Transformer of 12 blocks?", "number": 12 * per_block, "tolerance": 0},
    {
        "question": "A decoder's stream has 6 tokens, its context 9. How many rows does the cross-attention return for each sample?",
        "number": cross(n2(x), context=context).shape[1],
        "tolerance": 0,
    },
    {
        "question": "Why is the add of the position table no residual?",
        "choices": ["it has other shapes", "no learned branch of the same value is added", "it happens only once"],
        "answer": 1,
    },
    {
        "question": "Which branch of the decoder wrote the most in the figure, on average?",
        "choices": list(kinds),
        "answer": kinds.index(max(mean, key=mean.get)),
    },
]
