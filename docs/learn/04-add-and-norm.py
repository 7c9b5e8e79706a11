# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 4. Add & Norm: post-norm, pre-norm, sandwich
#
# A block has an add and a norm. Where the norm stands decides how large the stream grows, how the gradient comes back and how the model must be
# trained. This lesson writes the three usual places down, recovers them from running models, and measures the difference.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %%
torch.manual_seed(0)
dim, heads = 32, 4
X = torch.randn(2, 6, dim)

# %% [markdown]
# ## Post-norm: Add & Norm of the first transformer
#
# $$y = \mathrm{LayerNorm}(x + F(x))$$
#
# An encoder block does it twice, once around attention and once around the feed-forward network:
#
# $$Y = \mathrm{LayerNorm}(X + \mathrm{MultiHead}(X)) \qquad Z = \mathrm{LayerNorm}(Y + \mathrm{FFN}(Y))$$
#
# By hand, with the weights of PyTorch's own layer, beside that layer and beside skipway's block:

# %%
layer = nn.TransformerEncoderLayer(dim, heads, 64, dropout=0.0, batch_first=True, norm_first=False).eval()


def ffn(y: torch.Tensor) -> torch.Tensor:
    """The layer's feed-forward network."""
    return layer.linear2(torch.relu(layer.linear1(y)))


Y = layer.norm1(X + layer.self_attn(X, X, X, need_weights=False)[0])
Z = layer.norm2(Y + ffn(Y))
post_error = float((Z - layer(X)).detach().abs().max())
print(f"two lines beside torch.nn.TransformerEncoderLayer: {post_error:.1e} apart")
assert post_error < 1e-5, post_error

# %% [markdown]
# ## Pre-norm: the norm moves into the branch
#
# $$y = x + \mathrm{dropout}(F(\mathrm{Norm}(x)))$$
#
# The stream itself is never normed; the branch reads a normed copy. Post-norm with dropout is $\mathrm{Norm}(x + \mathrm{dropout}(F(x)))$. A
# wrapper for either must hand further arguments on to $F$, such as the context of a cross-attention. `skipway.nn.Residual` does both:

# %%
cross = skipway.nn.Attention(dim, heads, cross=True)
context = torch.randn(2, 9, dim)
pre = skipway.nn.Residual(cross, dim, "pre_norm", dropout=0.25)
pre.eval()
pre_error = float((pre(X, context=context) - (X + cross(pre.scheme.norm(X), context=context))).detach().abs().max())
print(f"pre-norm with an argument for F, beside its formula: {pre_error} apart")
assert pre_error == 0.0, pre_error

pre.train()
torch.manual_seed(1)
update = (pre(X, context=context) - X).detach()
dropped = float((update == 0).double().mean())
kept_scale = float((update / cross(pre.scheme.norm(X), context=context).detach())[update != 0].median())
print(f"in training, dropout=0.25 leaves out {dropped:.1%} of the update and multiplies the rest by {kept_scale:.3f}; x itself is untouched")
assert abs(dropped - 0.25) < 0.08, dropped
assert abs(kept_scale - 1 / 0.75) < 1e-2, kept_scale

# %% [markdown]
# Both formulas with dropout, beside the module, with the same random numbers:

# %%
dropout_error = {}
feed = skipway.nn.FeedForward(dim, 64)
for scheme in ("pre_norm", "post_norm"):
    wrapped = skipway.nn.Residual(feed, dim, scheme, dropout=0.25).train()
    norm = wrapped.scheme.norm
    torch.manual_seed(2)
    made = wrapped(X)
    torch.manual_seed(2)
    if scheme == "pre_norm":
        written = X + nn.functional.dropout(feed(norm(X)), 0.25)
    else:
        written = norm(X + nn.functional.dropout(feed(X), 0.25))
    dropout_error[scheme] = float((made - written).detach().abs().max())
print("x + dropout(F(Norm(x))) and Norm(x + dropout(F(x))) beside the modules:", dropout_error)
assert max(dropout_error.values()) < 1e-6, dropout_error

# %% [markdown]
# Dropout stands on the branch, before the add. On the stream it would delete numbers that all later layers need.
#
# ## Sandwich: a norm on both sides
#
# $$y = x + \mathrm{Norm}(F(\mathrm{Norm}(x)))$$
#
# Gemma 2 and 3 and GLM-4 are wired so. Every branch then writes numbers of one size.
#
# ## The placement can be read off a running model
#
# `skipway.trace` does not look at names. It follows the values and says where each norm stands:

# %%
placements = {}
for scheme in ("post_norm", "pre_norm", "sandwich", "plain"):
    wiring = skipway.trace(skipway.nn.EncoderBlock(dim, heads, scheme=scheme), X)
    placements[scheme] = [site.placement for site in wiring.sites]
    print(f"{scheme:10}", placements[scheme])
assert placements == {"post_norm": ["post"] * 2, "pre_norm": ["pre"] * 2, "sandwich": ["sandwich"] * 2, "plain": ["none"] * 2}, placements
print(skipway.trace(skipway.nn.EncoderBlock(dim, heads, scheme="sandwich"), X).draw())

# %% [markdown]
# ## What it does to the size of the stream
#
# The same 48 branches with the same weights, four placements. The size of the state that each branch finds, before any training:


# %%
def branches(count: int, gain: float = 1.6) -> list[nn.Module]:
    """The same branches at each call: weights are drawn anew from one seed."""
    torch.manual_seed(2)
    made: list[nn.Module] = [skipway.nn.FeedForward(dim, 64) for _ in range(count)]
    for branch in made:
        for p in branch.parameters():
            p.data.mul_(gain)
    return made


depth = 48
sizes = {}
for scheme in ("post_norm", "pre_norm", "sandwich", "plain"):
    stack = skipway.nn.Stack(branches(depth), dim, scheme, final_norm=False)
    sizes[scheme] = skipway.probe(stack, X).column("before")

fig = plt.Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
for scheme, style, color in zip(sizes, ("-", "--", "-.", ":"), ("C0", "C1", "C2", "C3")):
    ax.semilogy(range(depth), sizes[scheme], style, color=color, label=scheme.replace("_", "-"))
ax.set(xlabel="sublayers behind it", ylabel="RMS of the stream", title="Size of the stream through 48 sublayers, before training")
ax.legend()
fig

# %%
ends = {scheme: values[-1] for scheme, values in sizes.items()}
print({scheme: f"{value:.3g}" for scheme, value in ends.items()})
root = ends["sandwich"] / depth**0.5
assert abs(ends["post_norm"] - 1) < 0.05, ends
assert ends["pre_norm"] < ends["plain"] / 10, ends
assert 0.7 < root < 1.3, root

# %% [markdown]
# Post-norm keeps the size at 1, for each sum is normed. In a sandwich the stream starts at size 1 and each branch adds a vector of size 1 in a
# new direction, so after $S$ sublayers it has about $\sqrt{S + 1}$. Pre-norm grows in the same way, with steps as large as its branches write.
#
# ## Skips do not replace norms
#
# `plain`, the skip alone, grows by a constant *factor* at each sublayer, because its branches read a stream that is already larger:

# %%
factor = (sizes["plain"][-1] / sizes["plain"][0]) ** (1 / (depth - 1))
apart = ends["plain"] / ends["pre_norm"]
print(f"plain: times {factor:.3f} a sublayer; after {depth - 1} sublayers {ends['plain']:.3g}, which is {apart:.0f} times pre-norm")
assert factor > 1.05, factor

# %% [markdown]
# A deep stack needs the norm (or weights that start small, lesson 8) as well as the skip. One keeps the path open, the other keeps the size in
# hand.
#
# ## A final norm
#
# A pre-norm stream reaches the head unnormed. That is why pre-norm models have one more norm behind the last block, and post-norm models have none:

# %%
finals = {scheme: skipway.nn.Stack(branches(2), dim, scheme).final_norm is not None for scheme in ("pre_norm", "sandwich", "post_norm")}
print(finals)
assert finals == {"pre_norm": True, "sandwich": True, "post_norm": False}, finals

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "Which formula is pre-norm?",
        "choices": ["Norm(x + F(x))", "x + F(Norm(x))", "Norm(x) + F(Norm(x))", "x + Norm(F(Norm(x)))"],
        "answer": 1,
    },
    {"question": "Before the last of 48 sublayers, how large is the post-norm stream (RMS)?", "number": ends["post_norm"], "tolerance": 0.05},
    {
        "question": "Which placement keeps the smallest stream at depth 48?",
        "choices": list(ends),
        "answer": list(ends).index(min(ends, key=ends.get)),
    },
    {
        "question": "Where does residual dropout belong?",
        "choices": ["on the stream, after the add", "on the branch, before the add", "on the shortcut"],
        "answer": 1,
    },
    {"question": "By which factor did the plain stack grow at each sublayer?", "number": factor, "tolerance": 0.05},
]
