# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 9. Common mistakes, each made on purpose
#
# Most mistakes with residual connections raise no error: the shapes fit and the model runs. This lesson makes the usual ones and lets `skipway
# check` find each.

# %%
import pathlib
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway
from skipway.lab import tasks

# %%
torch.manual_seed(0)
dim, heads = 32, 4
x = torch.randn(2, 6, dim)

# %% [markdown]
# ## The block as it should be
#
# Pre-norm, two residuals. All wrong blocks below change only its `forward`.


# %%
class Right(nn.Module):
    """x + attention(norm(x)), then x + ffn(norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.ffn = skipway.nn.Attention(dim, heads, causal=True), skipway.nn.FeedForward(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Model(nn.Module):
    """Blocks between an input layer and a head."""

    def __init__(self, block: type[nn.Module], blocks: int = 2) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Linear(dim, dim), nn.Sequential(*(block() for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embed(x))))


found: dict[str, list[str]] = {}


def look(block: type[nn.Module], expect: skipway.Expect | None = None) -> skipway.Report:
    """Checks a model of such blocks and prints the first finding of each kind."""
    report = skipway.check(Model(block), x, expect=expect)
    first = {f.code: f for f in reversed(report.findings)}
    for code in sorted(first):
        print(f"{code} {first[code].rule}: {first[code].message}")
    if not first:
        print("no findings")
    found[block.__name__] = sorted({f.code for f in report.findings if f.severity == "error"})
    return report


look(Right)
assert found["Right"] == [], found

# %% [markdown]
# ## The `x +` is missing
#
# The most frequent one. The result has the right shape, and the block still computes something:


# %%
class Missing(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return self.ffn(self.norm2(x))


look(Missing)
assert found["Missing"] == ["SKW101"], found

# %% [markdown]
# ## The width changes inside F
#
# The second linear does not bring the width back. This one does raise an error, at the add; `Residual` says which branch it was and names both
# shapes:

# %%
wide = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU())
try:
    skipway.nn.Residual(wide, dim)(x)
    told = ""
except ValueError as error:
    told = str(error)
print(told)
assert "(2, 6, 128)" in told and "(2, 6, 32)" in told, told

# %% [markdown]
# ## A silent broadcast
#
# A branch of width 1 is stretched over all channels, and nothing complains:


# %%
class Broadcast(Right):
    def __init__(self) -> None:
        super().__init__()
        self.ffn.output = nn.Linear(4 * dim, 1)


look(Broadcast)
assert found["Broadcast"] == ["SKW501"], found

# %% [markdown]
# ## Pre-norm and post-norm mixed up
#
# The norm's result is given to the branch *and* kept as the shortcut. On paper it looks like pre-norm; in fact the raw stream is lost at every
# sublayer. Some models are built so on purpose; with `Expect` the owner declares what is meant, and the finding becomes an error:


# %%
class NormedSkip(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x)
        x = x + self.attention(x)
        x = self.norm2(x)
        return x + self.ffn(x)


look(NormedSkip, skipway.Expect(placement="pre"))
assert found["NormedSkip"] == ["SKW201"], found

# %% [markdown]
# Or the model is post-norm throughout, which is no mistake by itself, but another model than the paper, the checkpoint or the configuration
# says. That it *is* wrong can only be said against a declaration:


# %%
class PostNorm(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.ffn(x))


look(PostNorm)
undeclared = found["PostNorm"]
print("--- declared as pre-norm:")
look(PostNorm, skipway.Expect(placement="pre"))
assert undeclared == [], undeclared
assert "SKW203" in found["PostNorm"], found

# %% [markdown]
# ## Believing that the sublayer is skipped
#
# "Skip" does not mean that the layer is left out. Code written in that belief computes the layer and then returns its input, or adds it on one
# path only. Here the FFN runs and its result goes nowhere:


# %%
class LeftOut(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        self.ffn(self.norm2(x))
        return x


look(LeftOut)
assert found["LeftOut"] == ["SKW107"], found

# %% [markdown]
# In a right block both paths count. Leaving the branches out changes the output a great deal:

# %%
torch.manual_seed(3)
model = Model(Right)
out = model(x)
hooks = [m.register_forward_hook(lambda module, args, out: torch.zeros_like(out)) for b in model.blocks for m in (b.attention, b.ffn)]
gone = model(x)
for hook in hooks:
    hook.remove()
share = float((out - gone).detach().norm() / out.detach().norm())
print(f"output without the sublayers differs by {share:.0%} of its size")
assert share > 0.1, share

# %% [markdown]
# ## The stream is added twice, or to itself
#
# Two ways to get a factor of two at every block:


# %%
class Twice(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + (x + self.ffn(self.norm2(x)))


class SelfAdd(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + x


look(Twice)
look(SelfAdd)
assert found["Twice"] == ["SKW103"] and found["SelfAdd"] == ["SKW102"], found

# %% [markdown]
# ## What it costs
#
# Six blocks of each kind learn the copy task (a row of symbols has to be written again). All of them run:

# %%
task = tasks.build("copy")


def train(block: type[nn.Module], steps: int = 150) -> list[float]:
    """Loss by step."""
    torch.manual_seed(1)
    blocks = nn.Sequential(*(block() for _ in range(6)))
    net = nn.Sequential(task.embed(dim), blocks, nn.LayerNorm(dim), nn.Linear(dim, task.classes))
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    losses = []
    for step in range(steps):
        batch = task.batch("train", 1, step, 32)
        loss = task.loss(net(batch.inputs), batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


kinds = (Right, Missing, Broadcast, LeftOut)
curves = {block.__name__: train(block) for block in kinds}
fig = plt.Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
for (name, curve), style, color in zip(curves.items(), ("-", "--", ":", "-."), ("C0", "C2", "C3", "C1")):
    ax.plot(curve, style, color=color, label=name)
ax.set(xlabel="step", ylabel="loss", title="Copy task, six blocks: every wrong block runs", ylim=(0, None))
ax.legend()
fig

# %%
final = {name: sum(curve[-10:]) / 10 for name, curve in curves.items()}
print({name: round(value, 3) for name, value in final.items()})
assert final["Right"] < final["Missing"] - 0.5, final
assert max(final["Broadcast"], final["LeftOut"]) < 0.3, final

# %% [markdown]
# Without the `x +` nothing is learned in this time. But the broken FFNs, the one of width 1 and the one whose result goes nowhere, cost next to
# nothing *on this task*, because attention can copy alone. A loss curve would never have shown them; the wiring does.

# %% [markdown]
# ## On the command line
#
# The same check needs no line of Python. It exits with status 1 where it finds an error, so it can stand in a CI job:

# %%
source = """
import torch.nn as nn

class Block(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y)[0]
        return self.ffn(self.norm2(x))          # "x +" was left out
"""
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "block.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "skipway", "check", "block.py:Block", "--input", "float32[2,16,64]"], cwd=folder, capture_output=True, text=True
    )
print(done.stdout, "exit status", done.returncode)
assert done.returncode == 1, done.stderr
assert "SKW101 missing-skip" in done.stdout, done.stdout

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
codes = ["SKW101", "SKW102", "SKW201", "SKW501"]
questions = [
    {"question": "Which code does a block get whose `x +` was left out?", "choices": codes, "answer": codes.index(found["Missing"][0])},
    {
        "question": "x = norm(x); x = x + attention(x). What is wrong with it, where pre-norm is meant?",
        "choices": ["nothing", "the shortcut carries the normed value, the raw stream is lost", "the norm is missing"],
        "answer": 1 if found["NormedSkip"] else 0,
    },
    {
        "question": "When can a check say that a clean post-norm model is wrong?",
        "choices": ["always", "when the owner declares another placement", "never"],
        "answer": 1 if not undeclared and found["PostNorm"] else 0,
    },
    {"question": "What is the exit status of `skipway check` when it finds an error?", "number": done.returncode, "tolerance": 0},
    {
        "question": "Does a skip connection leave its sublayer out?",
        "choices": ["yes, when it is not needed", "no, both paths are computed and added"],
        "answer": 1,
    },
]
