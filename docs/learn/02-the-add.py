# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 2. The add and its shapes
#
# The add of a residual connection is elementwise. It has no weights and costs almost nothing, but it asks for one thing: both operands have the
# same shape. This lesson follows the shapes through a block, and shows what happens when they differ.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway
from skipway import ShapeMismatch

# %% tags=["hide"]
INK = plt.rcParams["text.color"]

# %% [markdown]
# ## Why the width comes back
#
# In a transformer the stream has the shape `(batch, token, d_model)`. Attention splits `d_model` into heads and works in them; its **output
# projection** brings the heads back to `d_model`. The feed-forward network (FFN) widens to, say, four times `d_model`; its **second linear** layer
# brings it back. Both do it so that the add fits.

# %%
torch.manual_seed(0)
batch, tokens, d_model, heads = 2, 6, 32, 4
x = torch.randn(batch, tokens, d_model)
attention, ffn = skipway.nn.Attention(d_model, heads), skipway.nn.FeedForward(d_model)

seen: dict[str, tuple[int, ...]] = {"stream": tuple(x.shape)}
steps = {
    "attention: query": attention.query,
    "attention: output projection": attention.output,
    "ffn: first linear": ffn.input,
    "ffn: second linear": ffn.output,
}
hooks = [m.register_forward_hook(lambda module, args, out, name=name: seen.update({name: tuple(out.shape)})) for name, m in steps.items()]
h = x + attention(x)
h = h + ffn(h)
for hook in hooks:
    hook.remove()
for name, shape in seen.items():
    print(f"{name:30} {shape}")
assert seen["attention: output projection"] == seen["ffn: second linear"] == seen["stream"] == tuple(h.shape)
assert seen["ffn: first linear"][-1] == 4 * d_model

# %%
fig = plt.Figure(figsize=(6.4, 2.8), layout="constrained")
ax = fig.subplots()
widths = [shape[-1] for shape in seen.values()]
bars = ax.barh(list(seen), widths, color=["C2" if w != d_model else "C0" for w in widths])
ax.bar_label(bars, padding=3, color=INK)
ax.axvline(d_model, color=INK, linestyle="--")
ax.invert_yaxis()
ax.set(xlabel="width of the last axis", title="Only what ends at d_model (dashed) can be added", xlim=(0, 145))
fig

# %% [markdown]
# The inside of the FFN is wider than the stream (orange). Where a branch ends, the width is `d_model` again.
#
# ## The add has no weights, and gives the gradient to both sides
#
# $y = x + F(x)$ elementwise. The derivative of $y$ by its shortcut operand is 1, and by its branch operand 1: each gets the whole gradient of $y$.

# %%
shortcut = torch.randn(2, 3, requires_grad=True)
result = torch.randn(2, 3, requires_grad=True)
upstream = torch.randn(2, 3)
(shortcut + result).backward(upstream)
assert torch.equal(shortcut.grad, upstream)
assert torch.equal(result.grad, upstream)
own = sum(p.numel() for p in skipway.nn.Residual(nn.Identity(), d_model, "plain").parameters())
print("both operands got the gradient of the sum to the last bit; parameters of the add:", own)
assert own == 0

# %% [markdown]
# ## A branch of another width
#
# Here the second linear gives 33 numbers a token instead of 32. Plain PyTorch stops, but its message names a dimension and no layer.
# `skipway.nn.Residual` names the branch and **both shapes**:

# %%
wrong = nn.Sequential(nn.Linear(d_model, 64), nn.GELU(), nn.Linear(64, d_model + 1))
messages = {}
try:
    x + wrong(x)
except RuntimeError as error:
    messages["PyTorch"] = str(error)
try:
    skipway.nn.Residual(wrong, d_model, "plain")(x)
except ShapeMismatch as error:
    messages["skipway"] = str(error)
for name, text in messages.items():
    print(f"{name}: {text}\n")
both_named = all(str(shape) in messages["skipway"] for shape in ((batch, tokens, d_model + 1), (batch, tokens, d_model)))
assert both_named, messages

# %% [markdown]
# ## A silent broadcast
#
# Worse than an error is none. PyTorch stretches an axis of length 1 to fit the other operand. Here the second linear gives one number a token, say
# because a head was put where the branch's end belongs. That number is added to all 32 channels without a word:


# %%
class Narrow(nn.Module):
    """A branch that ends in one number a token, by mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, 64), nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


narrow = Narrow()
y = x + narrow(x)
update = y - x
spread = float((update - update[..., :1]).detach().abs().max())
print(f"PyTorch gives {tuple(y.shape)} and no error; the update differs between channels by at most {spread:.1e}")
assert y.shape == x.shape
assert spread < 1e-5, spread

# %% [markdown]
# Every channel got the same update: the branch moves each token along one fixed direction and can do nothing else. The shape of the result is
# right, so no later layer will complain. `Residual` refuses, and `skipway check` finds it in models that do not use `Residual`:


# %%
class Block(nn.Module):
    """A block as one would write it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.ffn, self.narrow = skipway.nn.FeedForward(d_model), Narrow()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.ffn(x)
        return x + self.narrow(x)


try:
    skipway.nn.Residual(narrow, d_model, "plain")(x)
    refused = ""
except ShapeMismatch as error:
    refused = str(error)
print("Residual:", refused, "\n")
report = skipway.check(Block(), x)
for finding in report.findings:
    print(finding.code, finding.rule, "-", finding.message)
codes = [f.code for f in report.findings]
both_shapes = [str(shape) in text for text in (refused, report.findings[0].message) for shape in ((2, 6, 1), (2, 6, 32))]
assert all(both_shapes), (refused, report.findings[0].message)
assert codes == ["SKW501"], codes

# %% [markdown]
# One kind of broadcast is used on purpose: a context of shape `(batch, 1, d_model)`, one vector for all tokens with its axis kept. `skipway
# check` says nothing about it; `Residual` refuses it too, since a branch that means it can expand the result itself.
#
# ## Where shapes must change
#
# Convolutional networks halve the image and double the channels between stages. There the shortcut itself gets a projection (a 1x1 convolution), so
# that both operands have the new shape; lesson 7 shows it. Transformers keep one width from the first block to the last and need none.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "Which layer of the FFN brings the width back to d_model?",
        "choices": ["the first linear", "the activation", "the second linear"],
        "answer": 2,
    },
    {"question": "d_model is 32 and the FFN widens four times. How wide is the inside?", "number": seen["ffn: first linear"][-1], "tolerance": 0},
    {
        "question": "A branch returns the shape (2, 6, 1) beside a stream of (2, 6, 32). What does x + F(x) do in plain PyTorch?",
        "choices": ["it raises an error", "it adds one number to all channels of a token, silently", "it adds to the first channel only"],
        "answer": 1 if spread < 1e-5 else 0,
    },
    {"question": "How many parameters does the add itself have?", "number": own, "tolerance": 0},
]
