# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 7. From Highway and ResNet to Transformers
#
# Three designs, two years: a gate that shares between old and new (2015), an add without a gate (2015), and an add around attention (2017).
# This lesson builds each, and measures what its shortcut carries.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway

# %%
_ = torch.manual_seed(0)

# %% [markdown]
# ## Highway networks: the gated ancestor
#
# Srivastava, Greff and Schmidhuber (2015) let a learned gate $t$ between 0 and 1 decide, channel by channel:
#
# $$y = t \odot F(x) + (1 - t) \odot x \qquad t = \sigma(W x + b)$$
#
# The bias $b$ starts negative, so that most of $x$ is carried at first.

# %%
dim = 32
x = torch.randn(64, dim)
branch = skipway.nn.FeedForward(dim, 64)
highway = skipway.nn.Residual(branch, dim, "highway")
gate = highway.scheme.gate
t = torch.sigmoid(x @ gate.weight.T + gate.bias)
error = float((t * branch(x) + (1 - t) * x - highway(x)).detach().abs().max())
carried = 1 - float(t.detach().mean())
print(f"formula beside module: {error:.1e} apart; the bias starts at {gate.bias[0].item()}, so {carried:.0%} of x is carried")
assert error < 1e-6, error
assert 0.8 < carried < 0.95, carried

# %% [markdown]
# ## The price of the gate
#
# The shortcut is multiplied by $1 - t$ at *every* layer. After $n$ layers the identity path keeps $(1 - t)^n$. An add without a gate keeps all
# of it, and post-norm keeps less at each norm, since the norm divides by the size of the sum. Here the branches are kept in the forward but cut
# out of the backward, so that the gradient comes down the shortcuts alone; its size at the start beside its size at the end is what they kept:


# %%
def kept(scheme: str, layers: int) -> float:
    """The factor that the shortcuts alone put on a state, from the first layer to the last."""
    torch.manual_seed(1)
    stack = skipway.nn.Stack([skipway.nn.FeedForward(dim, 64) for _ in range(layers)], dim, scheme, final_norm=False)
    branches = [layer.branch for layer in stack.layers]
    for b in branches:  # a branch that gives no gradient back: what is left is the identity path
        b.register_forward_hook(lambda module, args, out: out.detach())
    start = x.clone().requires_grad_()
    out = stack(start)
    g = torch.randn_like(out)
    (back,) = torch.autograd.grad(out, start, g)
    return float(back.norm() / g.norm())


depths = [1, 2, 4, 8, 16, 32]
shares = {
    name: [kept(scheme, n) for n in depths]
    for name, scheme in (("Highway", "highway"), ("plain add (ResNet)", "plain"), ("post-norm (2017)", "post_norm"), ("pre-norm", "pre_norm"))
}
for name, values in shares.items():
    print(f"{name:20}", [f"{v:.2g}" for v in values])

fig = plt.Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
for (name, values), marker, style, color in zip(shares.items(), "osv^", ("--", "-", "-.", ":"), ("C2", "C0", "C3", "C1")):
    ax.semilogy(depths, values, marker=marker, linestyle=style, color=color, label=name)
ax.set(xlabel="layers", ylabel="factor on the identity path", title="What the shortcut keeps of a state")
ax.legend()
fig

# %%
assert abs(shares["plain add (ResNet)"][-1] - 1) < 1e-5, shares
assert abs(shares["pre-norm"][-1] - 1) < 1e-5, shares
assert shares["Highway"][-1] < 0.05, shares
assert shares["post-norm (2017)"][-1] < 0.8, shares

# %% [markdown]
# The plain add and pre-norm keep exactly 1 at any depth: that is the identity shortcut.
#
# ## ResNet: the identity shortcut, and a projection where shapes change
#
# He, Zhang, Ren and Sun (2015) took the gate off: $y = x + F(x)$ with convolutions as $F$. Between stages the image gets half as large and the
# channels double. There $x$ and $F(x)$ have different shapes, so the shortcut is a **1x1 convolution** with stride 2:

# %%
resnet = skipway.models.build("resnet", size="20")
wiring = skipway.trace(resnet, torch.randn(1, 3, 32, 32))
kinds = [site.shortcut for site in wiring.sites]
print("shortcuts:", kinds)
projections = kinds.count("projection")
assert projections == 2 and kinds.count("identity") == 7, kinds

block = skipway.nn.ResNet([1, 1], "basic", width=8, stem="small", classes=0)
image = torch.randn(2, 3, 16, 16)
second = [m for m in block.modules() if type(m).__name__ == "ConvBlock"][1]
shapes = []
hook = second.register_forward_hook(lambda module, args, out: shapes.append((tuple(args[0].shape), tuple(out.shape))))
block(image)
hook.remove()
kernel = tuple(second.shortcut[0].weight.shape)
print(f"first block of the second stage: {shapes[0][0]} -> {shapes[0][1]}, its shortcut's kernel is {kernel}")
assert kernel == (16, 8, 1, 1), kernel
assert shapes == [((2, 8, 16, 16), (2, 16, 8, 8))], shapes

# %% [markdown]
# Of the nine blocks of ResNet-20 seven have the identity, and two, the first of each later stage, a projection.
#
# ## Degradation: what ResNet was made for
#
# The paper's finding was that a *plain* network with more layers has a larger *training* error, so this is no overfitting. In small: layers
# `relu(W h + b)`, 3 and 30 of them, 160 steps on the same task, with and without the add:

# %%
from skipway.lab import tasks

task = tasks.build("mlp_depth")


class Layer(nn.Module):
    """relu(W x + b)."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(dim, dim)
        nn.init.kaiming_normal_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.map(x))


def train(scheme: str, layers: int, seed: int, steps: int = 160) -> list[float]:
    """Training loss by step."""
    torch.manual_seed(seed)
    scheme_options = {"normed": True} if scheme == "none" else {}
    stack = skipway.nn.Stack([Layer() for _ in range(layers)], dim, scheme, roles=["other"] * layers, **scheme_options)
    model = nn.Sequential(task.embed(dim), stack, nn.Linear(dim, task.classes))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(steps):
        batch = task.batch("train", seed, step, 128)
        loss = nn.functional.cross_entropy(model(batch.inputs), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


ends = {
    (scheme, layers): sum(sum(train(scheme, layers, seed)[-20:]) / 20 for seed in range(2)) / 2
    for scheme in ("none", "pre_norm")
    for layers in (3, 30)
}
for (scheme, layers), loss in ends.items():
    print(f"{scheme:9} {layers:2} layers: training loss {loss:.3f}")
degradation = ends["none", 30] - ends["none", 3]
assert degradation > 0.1, ends
assert ends["pre_norm", 30] < ends["none", 30] - 0.1, ends

# %% [markdown]
# Without the add, 30 layers train worse than 3. With it they do not. Both variants have norms here, so the difference is the add alone.
#
# ## Transformers: the same add around attention
#
# Vaswani et al. (2017) kept the add and put a LayerNorm behind it: Add & Norm. BERT is wired so. GPT-2 (2019) moved the norm into the branch,
# and nearly all later language models do that:

# %%
ids = torch.randint(0, 50, (1, 8))
history = {}
for name in ("bert", "gpt2", "llama"):
    found = skipway.trace(skipway.models.build(name), input_ids=ids)
    history[name] = sorted({f"{site.placement}-norm, {site.norm}" for site in found.sites})
    print(f"{name:6} {history[name]}")
assert history == {"bert": ["post-norm, LayerNorm"], "gpt2": ["pre-norm, LayerNorm"], "llama": ["pre-norm, RMSNorm"]}, history

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "A Highway gate starts with bias -2. Which share of x is carried through one layer, about?", "number": carried, "tolerance": 0.05},
    {
        "question": "What factor is on the identity path of a plain add after 32 layers?",
        "number": shares["plain add (ResNet)"][-1],
        "tolerance": 0.05,
    },
    {"question": "How many of the nine blocks of ResNet-20 have a projection as their shortcut?", "number": projections, "tolerance": 0},
    {
        "question": "Degradation means that a deeper plain network ...",
        "choices": ["overfits: training error falls, test error rises", "has a larger training error than a shallower one", "runs out of memory"],
        "answer": 1,
    },
    {
        "question": "Which design moved the norm into the branch?",
        "choices": ["BERT", "GPT-2", "ResNet-20"],
        "answer": 1 if history["gpt2"][0].startswith("pre") and history["bert"][0].startswith("post") else 0,
    },
]
