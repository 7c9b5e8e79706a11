# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 8. The identity start
#
# If every branch gives zero at the start, a network of any depth begins as the identity. This lesson shows the ways to get there, what the
# first gradient does, and what it buys at depth.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %%
torch.manual_seed(0)
dim = 32
x = torch.randn(4, 8, dim)

# %% [markdown]
# ## F(x) = 0, so y = x
#
# Two ways: start the **last weights** of the branch at zero, or multiply the branch by a learned **scale** that starts at zero:
#
# $$y = x + \alpha\, F(x), \qquad \alpha = 0 \text{ at the start}$$
#
# A random stack of 50 blocks beside one with zero-initialised branches, and beside the rules that have such a scale:


# %%
def branches(count: int, zero: bool = False) -> list[nn.Module]:
    """Feed-forward branches; with `zero` their last layer starts at zero."""
    torch.manual_seed(1)
    made: list[nn.Module] = [skipway.nn.FeedForward(dim, 64) for _ in range(count)]
    for branch in made:
        if zero:
            nn.init.zeros_(branch.output.weight)
            nn.init.zeros_(branch.output.bias)
    return made


depth = 50
moved = {
    "plain, random": skipway.nn.Stack(branches(depth), dim, "plain"),
    "plain, last layer zero": skipway.nn.Stack(branches(depth, True), dim, "plain"),
}
moved |= {scheme: skipway.nn.Stack(branches(depth), dim, scheme, final_norm=False) for scheme in ("rezero", "skip_init", "zero_tanh")}
change = {name: float((stack(x) - x).detach().abs().max()) for name, stack in moved.items()}
for name, value in change.items():
    print(f"{name:24} largest change of x through {depth} blocks: {value}")
assert change["plain, random"] > 1, change
assert all(value == 0.0 for name, value in change.items() if name != "plain, random"), change

# %% [markdown]
# All but the first return $x$ to the last bit. `layer_scale` starts not at zero but near it: its scale is a small number for each channel.

# %%
small = skipway.nn.Stack(branches(depth), dim, "layer_scale", final_norm=False)
start = small.layers[0].scheme.scale[0].item()
near = float((small(x) - x).detach().abs().max())
print(f"layer_scale starts at {start}: largest change {near:.2e}")
assert 0 < near < 0.1, near

# %% [markdown]
# ## What the first step can learn
#
# With $\alpha = 0$ the gradient of the branch's weights is $\alpha \cdot (\dots) = 0$: **exactly** zero. The gradient of $\alpha$ itself is
# not: it is $\langle g, F(x) \rangle$. So the first step moves only the scales, and from the second on everything learns. With a zero last
# layer the other half happens: the last layer gets a gradient, the layers before it do not.

# %%
target = torch.roll(x, 1, -1)


def first_gradients(stack: skipway.nn.Stack) -> dict[str, float]:
    """Size of the gradient by kind of parameter, for one batch."""
    stack.zero_grad()
    nn.functional.mse_loss(stack(x), target).backward()
    sizes = {"first linear": 0.0, "last linear": 0.0, "scale": 0.0}
    for name, p in stack.named_parameters():
        kind = "scale" if "scheme" in name else "first linear" if ".input." in name else "last linear"
        sizes[kind] = max(sizes[kind], float(p.grad.abs().max()))
    return sizes


gradient = {name: first_gradients(moved[name]) for name in ("rezero", "plain, last layer zero")}
for name, sizes in gradient.items():
    print(f"{name:24}", {k: f"{v:.2g}" for k, v in sizes.items()})
assert gradient["rezero"]["first linear"] == gradient["rezero"]["last linear"] == 0.0, gradient
assert gradient["rezero"]["scale"] > 0, gradient
assert gradient["plain, last layer zero"]["first linear"] == 0.0 < gradient["plain, last layer zero"]["last linear"], gradient

# %% [markdown]
# ## Both at zero never learn
#
# If $\alpha = 0$ *and* the last layer is zero, both gradients are zero: $\alpha$'s because $F(x) = 0$, the layer's because $\alpha = 0$. The
# block stays the identity for ever.

# %%
stuck = first_gradients(skipway.nn.Stack(branches(2, zero=True), dim, "rezero", init=False))
print("zero scale and zero last layer:", stuck)
assert set(stuck.values()) == {0.0}, stuck

# %% [markdown]
# ## What it buys at depth
#
# The gradient passes an identity start unchanged, however deep the stack is. Sixty blocks without any norm shall learn to move each channel to
# its neighbour. Their weights start with the size that He et al. give for relu, which keeps a signal's size through a branch, so each random
# block about doubles the mean square of the stream:


# %%
def train(scheme: str, lr: float, steps: int = 120) -> list[float]:
    """Loss by step. Clipping keeps what is large from breaking the run at once."""
    torch.manual_seed(2)
    made: list[nn.Module] = [skipway.nn.FeedForward(dim, 64, "relu") for _ in range(60)]
    for linear in (m for branch in made for m in branch.modules() if isinstance(m, nn.Linear)):
        nn.init.kaiming_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
    stack = skipway.nn.Stack(made, dim, scheme, init=False)
    optimizer = torch.optim.Adam(stack.parameters(), lr)
    losses = []
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        batch = torch.randn(64, dim, generator=generator)
        loss = nn.functional.mse_loss(stack(batch), torch.roll(batch, 1, -1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(stack.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


curves = {name: train(scheme, 1e-3) for name, scheme in (("random start", "plain"), ("identity start (rezero)", "rezero"))}
fig = plt.Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
for (name, curve), style, color in zip(curves.items(), ("--", "-"), ("C2", "C0")):
    ax.semilogy(curve, style, color=color, label=name)
ax.set(xlabel="step", ylabel="mean squared error", title="60 blocks without a norm")
ax.legend()
fig

# %%
first = {name: curve[0] for name, curve in curves.items()}
final = {name: sum(curve[-10:]) / 10 for name, curve in curves.items()}
print("first loss:", {k: f"{v:.3g}" for k, v in first.items()}, " last ten:", {k: f"{v:.3g}" for k, v in final.items()})
advantage = final["random start"] / final["identity start (rezero)"]
assert first["identity start (rezero)"] < first["random start"], first
assert advantage > 1e6, final

# %% [markdown]
# The identity start begins at the loss of "do nothing", which is 2 here: the variance of a channel minus its neighbour. The random start has
# multiplied its signal by $2^{60/2}$ and more, its gradient points nowhere useful, and it learns nothing. (With weights that start smaller,
# both learn: the start decides.)
#
# ## Where it is used
#
# ResNets start the last batch norm of each block at scale 0. Vision Transformers use LayerScale. Adapters and new blocks that are put into a
# trained model start at zero, so that the model does not change when they are added: `skipway.rewire` uses the same fact.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "y = x + a F(x) with a = 0. What is the first gradient of the weights of F?",
        "choices": ["exactly zero", "small", "as large as without a"],
        "answer": 0 if gradient["rezero"]["first linear"] == 0.0 else 1,
    },
    {"question": "By how much do 50 rezero blocks change x before training?", "number": change["rezero"], "tolerance": 0},
    {
        "question": "The scale and the last layer both start at zero. What happens in training?",
        "choices": ["it learns twice as slowly", "the block stays the identity for ever", "it explodes"],
        "answer": 1 if set(stuck.values()) == {0.0} else 0,
    },
    {
        "question": "The target is each channel's neighbour, inputs have variance 1. What is the first loss of an identity start, about?",
        "number": first["identity start (rezero)"],
        "tolerance": 0.15,
    },
]
