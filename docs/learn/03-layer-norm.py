# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 3. LayerNorm by hand and by module
#
# Next to almost every residual add of a transformer stands a norm. This lesson computes LayerNorm step by step, compares it with PyTorch's module,
# and shows what it keeps and what it removes.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

# %% [markdown]
# ## The formula
#
# For one token $x$ with $d$ numbers, the last axis of `(batch, token, d_model)`:
#
# $$\mu = \frac1d \sum_i x_i \qquad \sigma^2 = \frac1d \sum_i (x_i - \mu)^2 \qquad \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \qquad
# y = \gamma \odot \hat x + \beta$$
#
# The variance is the *biased* one: it divides by $d$, not by $d - 1$. $\gamma$ (scale) and $\beta$ (shift) are learned, one number a channel,
# and start at 1 and 0. $\varepsilon$ keeps the root away from zero.
#
# ## By hand, with numbers that can be checked on paper

# %%
token = torch.tensor([2.0, 4.0, 6.0, 8.0])
mean = token.mean()
variance = (token - mean).square().mean()
normed = (token - mean) / torch.sqrt(variance + 1e-5)
print(f"mean {mean:.1f}   variance {variance:.1f}   normed {[round(float(v), 4) for v in normed]}")
assert float(mean) == 5.0
assert float(variance) == 5.0

# %% [markdown]
# The deviations are -3, -1, 1, 3; their squares 9, 1, 1, 9 have the mean 5; and $-3 / \sqrt 5 = -1.3416$.
#
# ## By module
#
# The same three lines over a whole batch, beside `torch.nn.LayerNorm` with its own scale and shift, in float64 so that rounding does not hide
# an error:

# %%
torch.manual_seed(0)
dim = 24
x = 3 + 5 * torch.randn(2, 7, dim, dtype=torch.float64)
module = nn.LayerNorm(dim).double()
nn.init.normal_(module.weight, 1.0, 0.3)
nn.init.normal_(module.bias, 0.0, 0.3)


def by_hand(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-5, unbiased: bool = False) -> torch.Tensor:
    """LayerNorm over the last axis."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=unbiased)
    return (x - mean) / torch.sqrt(variance + eps) * scale + shift


error = float((by_hand(x, module.weight, module.bias) - module(x)).detach().abs().max())
print(f"largest difference between hand and module: {error:.1e}")
assert error < 1e-13, error

# %% [markdown]
# Only rounding is left. The common mistake is `x.var()` or `x.std()` with their defaults, which divide by $d - 1$:

# %%
mistake = float((by_hand(x, module.weight, module.bias, unbiased=True) - module(x)).detach().abs().max())
factor = ((dim - 1) / dim) ** 0.5
print(f"with the unbiased variance: off by up to {mistake:.3f}; all normed values shrink by the factor {factor:.4f}")
assert mistake > 1e-3, mistake

# %% [markdown]
# ## What it removes: mean and size
#
# Whatever the size and the offset of a token, after the norm its mean is 0 and its standard deviation 1 (before scale and shift).

# %%
sizes = torch.logspace(-2, 2, 9, dtype=torch.float64)
tokens = torch.stack([s * (torch.randn(256, dtype=torch.float64) + 2) for s in sizes])
after = nn.functional.layer_norm(tokens, (256,))
spread_before, spread_after = tokens.std(-1, unbiased=False), after.std(-1, unbiased=False)
print("standard deviation before:", [f"{float(v):.3g}" for v in spread_before])
print("standard deviation after: ", [f"{float(v):.3g}" for v in spread_after])
assert float(after.mean(-1).abs().max()) < 1e-12
assert float((spread_after[1:] - 1).abs().max()) < 0.01

fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
ax.loglog(sizes, spread_before, "o--", color="C2", label="before")
ax.loglog(sizes, spread_after, "s-", color="C0", label="after LayerNorm")
ax.set(xlabel="size that the token was made with", ylabel="standard deviation", title="LayerNorm forgets the size of a token")
ax.legend()
fig

# %% [markdown]
# The smallest token ends a little below 1: there $\varepsilon$ is no longer small beside the variance.
#
# ## What it keeps apart: tokens
#
# The mean runs over the last axis alone. So a change in one token cannot reach another; a norm over the batch would mix samples.

# %%
changed = x.clone()
changed[0, 3] += torch.randn(dim, dtype=torch.float64)
moved = (module(changed) - module(x)).detach().abs().amax(-1)
print("tokens that moved:", [tuple(i) for i in moved.nonzero().tolist()])
reached = int((moved > 0).sum())
assert reached == 1, reached

# %% [markdown]
# ## What it does to the gradient
#
# The output does not change when the input is shifted or scaled. So its gradient has no part along those two directions: along the vector of
# ones, and along the centred input itself.

# %%
leaf = x.clone().requires_grad_()
(nn.functional.layer_norm(leaf, (dim,), eps=0.0) * torch.randn_like(x)).sum().backward()
centred = x - x.mean(-1, keepdim=True)
along_ones = float(leaf.grad.sum(-1).abs().max())
along_input = float((leaf.grad * centred).sum(-1).abs().max())
print(f"gradient along the ones: {along_ones:.1e}   along the centred input: {along_input:.1e}   its size: {float(leaf.grad.std()):.2f}")
assert along_ones < 1e-12 and along_input < 1e-12, (along_ones, along_input)

# %% [markdown]
# ## RMSNorm
#
# Llama and many later models leave out the mean and the shift: $y = \gamma \odot x / \sqrt{\tfrac1d \sum_i x_i^2 + \varepsilon}$. On a token
# whose mean is zero both are the same:

# %%
rms_norm = nn.RMSNorm(dim, eps=1e-5).double()
same = float((rms_norm(centred) - nn.functional.layer_norm(centred, (dim,))).detach().abs().max())
apart = float((rms_norm(x) - nn.functional.layer_norm(x, (dim,))).detach().abs().max())
print(f"RMSNorm beside LayerNorm: {same:.1e} apart on centred tokens, {apart:.2f} on tokens with a mean")
assert same < 1e-12 and apart > 0.1, (same, apart)

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "A token is [2, 4, 6, 8]. What is its biased variance?", "number": float(variance), "tolerance": 0.05},
    {"question": "And its last normed value, before scale and shift?", "number": float(normed[-1]), "tolerance": 0.05},
    {
        "question": "Over which axis does LayerNorm take mean and variance of (batch, token, d_model)?",
        "choices": ["batch", "token", "d_model", "all of them"],
        "answer": 2 if reached == 1 else 3,
    },
    {
        "question": "All numbers of a token are multiplied by 10. What happens to its LayerNorm?",
        "choices": ["it is ten times as large", "nothing, but for what epsilon does", "it changes its sign"],
        "answer": 1,
    },
]
