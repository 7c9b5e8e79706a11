# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 5. Gradient flow with and without skips
#
# A deep network learns only if the gradient of the loss reaches its first layers with a useful size. This lesson measures that size at every
# depth, with and without skips, and then looks at what happens to the information on its way forward.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %% [markdown]
# ## A product against a sum
#
# By the chain rule the gradient goes back through a row of $L$ layers as a product of their Jacobians $J_l = \partial F_l / \partial x$:
#
# $$\text{without skips:}\quad g_0 = J_1^\top J_2^\top \cdots J_L^\top\, g_L$$
#
# $$\text{with skips:}\quad g_0 = (I + J_1)^\top (I + J_2)^\top \cdots (I + J_L)^\top\, g_L$$
#
# Without skips every factor has the size of one layer. If that is below 1 the product vanishes, if it is above 1 it explodes, and only exactly
# at 1 it does neither. With skips each factor holds the identity, so one term of the product is $g_L$ itself, whatever the layers do.
#
# ## The skip adds exactly the identity
#
# For one block in float64, the Jacobian of $x + F(x)$ minus the Jacobian of $F$:

# %%
torch.manual_seed(0)
dim, depth = 32, 32
branch = skipway.nn.FeedForward(dim, 64).double()
point = torch.randn(dim, dtype=torch.float64)
with_skip = torch.autograd.functional.jacobian(lambda x: x + branch(x), point)
without = torch.autograd.functional.jacobian(branch, point)
off = float((with_skip - without - torch.eye(dim)).abs().max())
print(f"(I + J) - J differs from the identity by {off:.1e}; size of J: {float(torch.linalg.matrix_norm(without, 2)):.2f}")
assert off < 1e-12, off

# %% [markdown]
# ## Weights that halve or double a signal, 32 layers
#
# The same layers with weights that halve a signal at each layer (gain 0.5) or double it (gain 2). The gradient on the state after each layer, as
# a share of the gradient at the end:

# %%
tokens = torch.randn(64, dim)
direction = torch.randn(64, dim)


def stack(scheme: str, gain: float, layers: int = depth, seed: int = 1, **options: bool) -> skipway.nn.Stack:
    """`layers` feed-forward branches whose output has about `gain` times the size of their input."""
    torch.manual_seed(seed)
    branches = [skipway.nn.FeedForward(dim, 64, "relu", bias=False) for _ in range(layers)]
    for b in branches:
        nn.init.normal_(b.input.weight, std=(2 / dim) ** 0.5)
        nn.init.normal_(b.output.weight, std=gain / 8)
    return skipway.nn.Stack(branches, dim, scheme, final_norm=False, init=False, **options)


def gradients(model: skipway.nn.Stack) -> list[float]:
    """Norm of the loss's gradient on the input and on the state after each layer."""
    states = [tokens.clone().requires_grad_()]
    hooks = [layer.register_forward_hook(lambda module, args, out: states.append(out[0])) for layer in model.layers]
    loss = (model(states[0]) * direction).mean()
    for hook in hooks:
        hook.remove()
    return [float(g.norm()) for g in torch.autograd.grad(loss, states)]


cases = {
    "no skip, gain 0.5": ("none", 0.5),
    "no skip, gain 2": ("none", 2.0),
    "pre-norm skip, gain 0.5": ("pre_norm", 0.5),
    "pre-norm skip, gain 2": ("pre_norm", 2.0),
}
by_depth = {name: gradients(stack(scheme, gain)) for name, (scheme, gain) in cases.items()}
ratio = {name: values[0] / values[-1] for name, values in by_depth.items()}
for name, value in ratio.items():
    print(f"{name:26} gradient at the first layer / at the last: {value:.3g}")

fig = plt.Figure(figsize=(6.4, 3.6), layout="constrained")
ax = fig.subplots()
for (name, values), style, color in zip(by_depth.items(), ("--", ":", "-", "-."), ("C2", "C3", "C0", "C1")):
    ax.semilogy([v / values[-1] for v in values], style, color=color, label=name)
ax.set(xlabel="layer", ylabel="gradient / gradient at the end", title="The gradient on its way back (right to left)")
ax.legend()
fig

# %%
vanishing, exploding = ratio["no skip, gain 0.5"], ratio["no skip, gain 2"]
steady = [ratio["pre-norm skip, gain 0.5"], ratio["pre-norm skip, gain 2"]]
assert vanishing < 1e-6, vanishing
assert exploding > 1e6, exploding
assert all(0.5 < r < 30 for r in steady), steady

# %% [markdown]
# Without skips the gradient **vanishes** (gain 0.5) or **explodes** (gain 2): ten orders of magnitude either way for a factor of two in the
# weights. With a pre-norm skip both cases stay within a factor of twenty. This is what *stable gradient flow* means: it no longer hangs on
# the weights being just right.
#
# ## How fast: the number of layers is an exponent

# %%
depths = [4, 8, 16, 32]
shrink = [gradients(stack("none", 0.5, layers))[0] / gradients(stack("none", 0.5, layers))[-1] for layers in depths]
per_layer = (shrink[-1] / shrink[0]) ** (1 / (depths[-1] - depths[0]))
print({layers: f"{s:.1e}" for layers, s in zip(depths, shrink)}, f"-> times {per_layer:.2f} a layer")
assert 0.35 < per_layer < 0.65, per_layer

# %% [markdown]
# Each layer multiplies the gradient by about its gain, one half.
#
# ## A skip alone can explode, too
#
# $(I + J)$ is larger than $I$ when the branch reads a stream that nobody norms. The skip prevents vanishing; the norm in front of the branch
# prevents explosion:

# %%
bare = gradients(stack("plain", 1.0))
bare_ratio = bare[0] / bare[-1]
print(f"skip without a norm, gain 1: {bare_ratio:.3g}")
assert bare_ratio > 100 * max(steady), bare_ratio

# %% [markdown]
# ## The share that came down the identity path
#
# `skipway.probe` follows the gradient back through the shortcuts alone. In a pre-norm stream nothing stands on them, so this part arrives
# unchanged; the rest of the gradient came through branches.

# %%
table = skipway.probe(stack("pre_norm", 0.5), tokens, loss=lambda out: (out * direction).mean())
share = table.rows[0].identity
print(f"share of the gradient on the first state that came down the identity path alone: {share:.1%}; verdict: {table.summary[0].verdict}")
assert share is not None and 0.02 < share < 1, share
assert table.summary[0].verdict == "steady", table.summary[0].verdict

# %% [markdown]
# ## Loss of information, and features that are kept
#
# The same holds on the way forward. If the input can still be read off a late state by a linear map, its features were kept. The map is fitted
# on half of 4096 tokens and judged on the other half: $R^2 = 1$ means the input is recovered, $R^2 = 0$ that the guess is no better than the
# mean.

# %%
many = torch.randn(4096, dim, generator=torch.Generator().manual_seed(3))


def recovered(model: skipway.nn.Stack) -> list[float]:
    """R^2 of the input by a linear map from the state after each layer."""
    states = [many]
    hooks = [layer.register_forward_hook(lambda module, args, out: states.append(out[0].detach())) for layer in model.layers]
    with torch.no_grad():
        model(many)
    for hook in hooks:
        hook.remove()
    scores = []
    for state in states:
        x = torch.cat([state / state.std(), torch.ones(len(state), 1)], 1).double()
        fit = torch.linalg.lstsq(x[:2048], many[:2048].double()).solution
        scores.append(float(1 - (x[2048:] @ fit - many[2048:]).square().mean() / many[2048:].double().var()))
    return scores


kept = {"no skip (normed)": recovered(stack("none", 0.5, normed=True)), "pre-norm skip": recovered(stack("pre_norm", 0.5))}
last = {name: scores[-1] for name, scores in kept.items()}
print({name: round(score, 3) for name, score in last.items()})
assert last["pre-norm skip"] > last["no skip (normed)"] + 0.4, last

fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
for (name, scores), style, color in zip(kept.items(), ("--", "-"), ("C2", "C0")):
    ax.plot(scores, style, color=color, label=name)
ax.set(xlabel="layer", ylabel="R² of the input", title="How much of the input a late state still holds (no training)", ylim=(-0.05, 1.05))
ax.legend()
fig

# %% [markdown]
# Both stacks have norms, so no signal dies or explodes. Still the plain one overwrites its state at each layer and loses the input step by
# step, while the skip carries it along.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "Which matrix does the gradient pass at a block y = x + F(x) with the Jacobian J of F?",
        "choices": ["J", "I", "I + J", "I - J"],
        "answer": 2 if off < 1e-12 else 0,
    },
    {"question": "Without skips and with gain 0.5, what does each layer multiply the gradient by, about?", "number": per_layer, "tolerance": 0.15},
    {
        "question": "Which of these stacks had the largest gradient at its first layer?",
        "choices": list(ratio),
        "answer": list(ratio).index(max(ratio, key=ratio.get)),
    },
    {"question": "What was R² of the input after 32 layers with the skip?", "number": last["pre-norm skip"], "tolerance": 0.05},
]
