# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 10. The copy-task ablation
#
# An ablation takes one part out and leaves all else equal. Here the part is the skip. The task is to copy: a row of random symbols, a
# separator, and the same symbols again, which the model has to predict one by one. Every symbol must cross all layers unchanged, which is what
# a skip is said to be good for.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway
from skipway.lab import tasks

# %% tags=["hide"]
INK = plt.rcParams["text.color"]

# %% [markdown]
# ## The task

# %%
task = tasks.build("copy")
batch = task.batch("train", 0, 0, 2)
print("inputs of one row: ", batch.inputs[0].tolist())
print("targets of one row:", batch.targets[0].tolist(), "(-100: not asked)")
guess = float(torch.log(torch.tensor(float(task.classes))))
asked = batch.targets != -100
print(
    f"{task.classes} symbols: a blind guess has the loss ln {task.classes} = {guess:.3f}; asked are {int(asked[0].sum())} of {asked.shape[1]} places"
)
assert batch.inputs.shape == batch.targets.shape == (2, 16)

# %% [markdown]
# ## Two models that differ in the skip alone
#
# $$\text{with:}\quad x + F(\mathrm{Norm}(x)) \qquad\qquad \text{without:}\quad F(\mathrm{Norm}(x))$$
#
# Norms, weights, data, learning rate and their order are the same. `skipway.schemes` has both rules, `pre_norm` and `none` with `normed=True`:

# %%
width, heads = 32, 4


def model(skip: bool, blocks: int, seed: int) -> nn.Sequential:
    """A small decoder-only transformer."""
    torch.manual_seed(seed)
    options = {"scheme": "pre_norm"} if skip else {"scheme": "none", "normed": True}
    return nn.Sequential(task.embed(width), skipway.nn.Encoder(width, heads, blocks, causal=True, **options), nn.Linear(width, task.classes))


one, other = model(True, 1, 0), model(False, 1, 0)
same = all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
print("the same parameters, number by number:", same, sum(p.numel() for p in one.parameters()))
assert same


def train(skip: bool, blocks: int, seed: int, steps: int = 150, lr: float = 3e-3) -> list[float]:
    """Loss by step."""
    net = model(skip, blocks, seed)
    optimizer = torch.optim.AdamW(net.parameters(), lr)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 15)
        rows = task.batch("train", seed, step, 32)
        loss = task.loss(net(rows.inputs), rows)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


# %% [markdown]
# ## A tiny block, then two, then four

# %%
seeds = (0, 1)
curves = {(blocks, skip): [train(skip, blocks, seed) for seed in seeds] for blocks in (1, 2, 4) for skip in (True, False)}
fig = plt.Figure(figsize=(8, 3.2), layout="constrained")
axes = fig.subplots(1, 3, sharey=True)
for ax, blocks in zip(axes, (1, 2, 4)):
    for skip, style, color in ((True, "-", "C0"), (False, "--", "C2")):
        for k, curve in enumerate(curves[blocks, skip]):
            ax.plot(curve, style, color=color, label=("with skip" if skip else "without") if k == 0 else None)
    ax.axhline(guess, color=INK, linestyle=":")
    ax.set(xlabel="step", title=f"{blocks} block{'s' if blocks > 1 else ''}")
axes[0].set_ylabel("loss (dotted: blind guess)")
axes[0].legend()
fig

# %%
final = {key: sum(sum(c[-10:]) / 10 for c in found) / len(found) for key, found in curves.items()}
below = {key: [next((k for k, loss in enumerate(c) if loss < guess / 2), None) for c in found] for key, found in curves.items()}
for key in final:
    print(f"{key[0]} blocks, {'with' if key[1] else 'without':7} skip: last loss {final[key]:.3f}; steps to half of a blind guess: {below[key]}")
assert final[1, True] < 0.1 and final[1, False] < 0.1, final
assert final[2, True] < final[2, False] / 3, final
assert final[4, True] < 0.1 and final[4, False] > 1.5, final

# %% [markdown]
# **One block**: both learn it, and the one without the skip is not worse. A single block is short enough for gradient and symbols to pass. That
# an ablation shows no effect *here* is a result, too: the skip is not magic.
#
# **Two blocks**: both learn, the one without the skip needs more steps: *slow convergence*.
#
# **Four blocks**: without the skip the loss stays near the blind guess, with it the model copies. Only the number of blocks has changed.

# %%
delay = sum(a - b for a, b in zip(below[2, False], below[2, True])) / len(seeds)
speed = sum(a / b for a, b in zip(below[2, False], below[2, True])) / len(seeds)
print(f"at two blocks the model without the skip reaches half of a blind guess {delay:.0f} steps later ({speed:.1f} times as many)")
assert delay > 0, below

# %% [markdown]
# ## Is it luck?
#
# Two seeds show a tendency, not a proof. `skipway compare` runs such a study with paired seeds and several learning rates and says whether the
# difference is larger than chance; lesson 11 uses it:
#
# ```
# skipway compare copy --depth 4 --variants none:normed=true,pre_norm --seeds 3 --out study
# ```
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "What loss has a blind guess among 16 symbols?", "number": guess, "tolerance": 0.05},
    {
        "question": "At one block, which model learned the task?",
        "choices": ["only the one with the skip", "only the one without", "both", "neither"],
        "answer": 2 if max(final[1, True], final[1, False]) < 0.1 else 0,
    },
    {"question": "At four blocks, what was the last loss without the skip (mean of the seeds)?", "number": final[4, False], "tolerance": 0.15},
    {
        "question": "Why must both models have norms in this ablation?",
        "choices": ["norms make it faster", "or two things would differ, and the effect could not be told apart"],
        "answer": 1,
    },
]
