# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 1. Skip connections and residual learning
#
# A *skip connection* carries a value around a layer and adds it to what the layer computes. *Residual connection* is another name for the same
# thing. This lesson shows the formula, what it asks the layer to learn, and what it gives for free.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %% [markdown]
# ## One formula, two names
#
# A plain layer replaces its input: $y = F(x)$. With a skip connection the input stays, and the layer adds to it:
#
# $$y = x + F(x)$$
#
# $F$ is the **branch**, the path that carries $x$ is the **shortcut**, and what runs through all adds of a network is its **stream**.
# By hand it is one line. `skipway.nn.Residual` with the rule `plain` is the same line as a module:

# %%
torch.manual_seed(0)
dim = 16
branch = skipway.nn.FeedForward(dim, 64)
x = torch.randn(2, 5, dim)  # (batch, token, d_model)

by_hand = x + branch(x)
block = skipway.nn.Residual(branch, dim, "plain")
difference = float((block(x) - by_hand).detach().abs().max())
print(f"largest difference between the module and the line: {difference}")
assert difference == 0.0, difference

# %% [markdown]
# The two agree to the last bit.
#
# ## What the layer has to learn
#
# Say that the best map for this place in the network is $H$. Without the skip the layer must learn all of $H$. With it, the layer must learn only
# what $H$ changes:
#
# $$F(x) = H(x) - x$$
#
# This is called the *residual* of $H$, and it gives residual learning its name. In a deep network most layers change their input only a little,
# so the residual is small. Here $H$ turns the input a little and bends it:

# %%
generator = torch.Generator().manual_seed(1)
turn = torch.eye(dim) + 0.05 * torch.randn(dim, dim, generator=generator)
inputs = torch.randn(512, dim, generator=generator)


def target(x: torch.Tensor) -> torch.Tensor:
    """H: nearly the identity."""
    return x @ turn.T + 0.1 * torch.sin(x)


def rms(t: torch.Tensor) -> float:
    """Root of the mean square: the usual size of one number of a tensor."""
    return float(t.detach().square().mean().sqrt())


size_whole, size_residual = rms(target(inputs)), rms(target(inputs) - inputs)
print(f"size of H(x): {size_whole:.3f}   size of H(x) - x: {size_residual:.3f}   ratio {size_residual / size_whole:.2f}")
assert size_residual < 0.3 * size_whole, (size_residual, size_whole)

# %% [markdown]
# The residual is a fraction of the whole map. Now the same small network, with the same starting weights and the same number of steps, learns
# $H$ with and without the skip:


# %%
def train(skip: bool, seed: int) -> list[float]:
    """Mean squared error after each step."""
    torch.manual_seed(seed)
    layer = skipway.nn.Residual(skipway.nn.FeedForward(dim, 32), dim, "plain" if skip else "none")
    optimizer = torch.optim.Adam(layer.parameters(), 3e-3)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(layer(inputs), target(inputs))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


curves = {name: [train(skip, seed) for seed in range(3)] for name, skip in (("without skip", False), ("with skip", True))}
ends = {name: sum(c[-1] for c in cs) / 3 for name, cs in curves.items()}
first_step = {name: sum(c[0] for c in cs) / 3 for name, cs in curves.items()}
advantage = ends["without skip"] / ends["with skip"]
print({name: round(v, 5) for name, v in ends.items()}, f"-> {advantage:.1f} times smaller with the skip")
assert advantage > 3, advantage
assert first_step["with skip"] < 0.3 * first_step["without skip"], first_step

fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
for color, style, (name, found) in zip(("C2", "C0"), ("--", "-"), curves.items()):
    for k, curve in enumerate(found):
        ax.semilogy(curve, style, color=color, label=name if k == 0 else None)
ax.set(xlabel="step", ylabel="mean squared error", title="Learning a map that is nearly the identity (3 seeds each)")
ax.legend()
fig

# %% [markdown]
# With the skip the error is lower from the first step, because the block starts near the identity, which is already nearly right. This is what
# *easier optimisation* means here: the same layer, the same steps, a lower error.
#
# ## F(x) = 0 makes the block the identity
#
# If the branch gives zero, then $y = x + 0 = x$. No other weights have to be right for that. Without the skip the layer would have to learn the
# identity.

# %%
quiet = skipway.nn.FeedForward(dim, 64)
nn.init.zeros_(quiet.output.weight)
nn.init.zeros_(quiet.output.bias)
with_skip = skipway.nn.Residual(quiet, dim, "plain")(x)
without = skipway.nn.Residual(quiet, dim, "none")(x)
print("with skip: y equals x to the last bit:", torch.equal(with_skip, x), "   without: size of y is", rms(without))
assert torch.equal(with_skip, x)
assert rms(without) == 0.0

# %% [markdown]
# A deep stack of such blocks passes its input on unchanged; lesson 8 builds on this.
#
# ## The sublayer is not skipped
#
# The name misleads. A skip connection does not leave the layer out and does not choose between two paths: both are always computed, and their
# results are added. Counting the calls shows it:

# %%
calls = []
hook = branch.register_forward_hook(lambda module, args, out: calls.append(out.detach()))
y = block(x).detach()
hook.remove()
added = float((y - x - calls[0]).abs().max())
print(f"calls of the branch in one forward: {len(calls)};  y - x is what it returned, up to {added:.1e};  its size is {rms(calls[0]):.3f}")
assert len(calls) == 1, len(calls)
assert added < 1e-6, added
assert rms(calls[0]) > 0.05

# %% [markdown]
# ## What skipway sees
#
# `skipway.trace` runs a model once and finds its adds by following the values, not the names of modules. Two residual blocks in a row give one
# stream with two **sites**:

# %%
model = nn.Sequential(skipway.nn.Residual(skipway.nn.FeedForward(dim), dim, "plain"), skipway.nn.Residual(skipway.nn.FeedForward(dim), dim, "plain"))
wiring = skipway.trace(model, x)
print(wiring.draw())
sites = len(wiring.sites)
assert sites == 2, sites
assert all(site.shortcut == "identity" and site.gain == 1 for site in wiring.sites)

# %% [markdown]
# The thick line is the stream. Each branch leaves it, computes, and comes back at a ⊕.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "A layer with a skip connection should come to compute H. What must its branch F learn?",
        "choices": ["H(x)", "H(x) - x", "H(x) + x", "x"],
        "answer": 1,
    },
    {
        "question": "In this lesson, which share of the size of H(x) is the size of the residual H(x) - x?",
        "number": size_residual / size_whole,
        "tolerance": 0.05,
    },
    {
        "question": "The branch returns zero everywhere. What does x + F(x) give?",
        "choices": ["zero", "x, to the last bit", "something that depends on the weights"],
        "answer": 1 if torch.equal(with_skip, x) else 0,
    },
    {"question": "How often does the branch run in one forward of a block with a skip connection?", "number": len(calls), "tolerance": 0},
]
