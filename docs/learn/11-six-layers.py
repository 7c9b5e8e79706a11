# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 11. The six-layer ablation
#
# The same experiment at the size of the first transformer's encoder: six layers, each with attention and a feed-forward network. This time as a
# *study*: paired seeds, a verdict with an interval, and a look inside at the start and at the end.

# %%
import math
import tempfile

import matplotlib.pyplot as plt

import skipway

# %% tags=["hide"]
INK = plt.rcParams["text.color"]

# %% [markdown]
# ## The study
#
# A study lists its variants and runs each with the same seeds: seed 0 of both variants starts from the same weights and sees the same data, so
# the difference of a pair is the effect of the skip. On the command line it is
# `skipway compare copy --depth 6 --variants none:normed=true,pre_norm`; in Python:

# %%
study = skipway.lab.Study(
    task="copy", variants=["none:normed=true", "pre_norm"], depth=6, seeds=3, lr=3e-3, steps=150, schedule="constant", probes=[0, 150], evaluate=10
)
with tempfile.TemporaryDirectory() as folder:
    report = skipway.lab.run(study, f"{folder}/study")
arms = {s["arm"]: s for s in report["summary"]}
names = {"pre_norm": "with skip", "none:normed=true": "without skip"}
for arm, name in names.items():
    print(
        f"{name:13} held-out loss {arms[arm]['loss']['mean']:.3f} (seeds: sd {arms[arm]['loss']['sd']:.3f}), symbols right: {arms[arm]['score']:.1%}"
    )
assert all(t["state"] == "finished" for t in report["trials"]), [t["reason"] for t in report["trials"]]

# %% [markdown]
# ## Training curves

# %%
fig = plt.Figure(figsize=(6.4, 3.4), layout="constrained")
ax = fig.subplots()
for arm, style, color in (("pre_norm", "-", "C0"), ("none:normed=true", "--", "C2")):
    for k, trial in enumerate(t for t in report["trials"] if t["arm"] == arm):
        points = [p for p in trial["points"] if p["split"] == "held_out"]
        ax.plot([p["step"] for p in points], [p["loss"] for p in points], style, color=color, marker=".", label=names[arm] if k == 0 else None)
ax.axhline(math.log(16), color=INK, linestyle=":")
ax.set(xlabel="step", ylabel="held-out loss (dotted: blind guess)", title="Six layers on the copy task, three seeds each", ylim=(0, None))
ax.legend()
fig

# %% [markdown]
# ## The verdict

# %%
comparison = report["comparisons"][0]
print(comparison["sentence"])
difference = comparison["difference"]
with_skip, without = arms["pre_norm"]["loss"]["mean"], arms["none:normed=true"]["loss"]["mean"]
assert comparison["verdict"] == "better", comparison["verdict"]
assert difference["high"] < 0, difference
assert with_skip < 0.2 and without > 2, (with_skip, without)

# %% [markdown]
# The interval is that of the *paired difference* in loss. All of it lies below zero, so the model with the skip is better beyond what the seeds
# scatter.
#
# ## Inside, before the first step
#
# What differs before anything is learned? The gradient of the loss on the state after each sublayer:


# %%
def by_depth(arm: str, step: int, field: str) -> list[float]:
    """Mean over seeds of one measured value at each sublayer."""
    trials = [[d[field] for d in t["depths"] if d["step"] == step] for t in report["trials"] if t["arm"] == arm]
    return [sum(values) / len(values) for values in zip(*trials)]


fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
start = {}
for arm, style, color in (("pre_norm", "-", "C0"), ("none:normed=true", "--", "C2")):
    values = by_depth(arm, 0, "gradient")
    start[arm] = values
    ax.semilogy(range(1, len(values) + 1), values, style, color=color, marker="o", label=names[arm])
ax.set(xlabel="sublayer", ylabel="RMS of the gradient", title="Gradient by depth before the first step")
ax.legend()
fig

# %%
change = {arm: values[0] / values[-1] for arm, values in start.items()}
steadier = {arm: max(values) / min(values) for arm, values in start.items()}
print(
    "first sublayer / last:",
    {names[a]: round(v, 3) for a, v in change.items()},
    " largest / smallest:",
    {names[a]: round(v, 1) for a, v in steadier.items()},
)
assert steadier["none:normed=true"] > 1.2 * steadier["pre_norm"], steadier
assert 0.1 < change["none:normed=true"] < 10, change

# %% [markdown]
# With the skip the gradient is more even. But without it, it neither vanishes nor explodes: twelve sublayers with a norm in front of each are
# not deep enough for that. So its *size* cannot be the whole reason why nothing is learned. The next section looks at what the state still
# holds.
#
# ## What the last state still knows
#
# A linear map tries to read the input symbol at each place off the last state. Chance is about one in seventeen.


# %%
def reads(arm: str, step: int) -> float:
    """Share of symbols that a linear map recovers, mean over seeds."""
    values = [r["value"] for t in report["trials"] if t["arm"] == arm for r in t["readouts"] if r["step"] == step]
    return sum(values) / len(values)


recovered = {(arm, step): reads(arm, step) for arm in names for step in (0, 150)}
for (arm, step), value in recovered.items():
    print(f"{names[arm]:13} step {step:3}: {value:.1%} of the input symbols recovered")
assert recovered["pre_norm", 0] > recovered["none:normed=true", 0] + 0.2, recovered

# %% [markdown]
# Before training the stream with skips still holds the symbols (*features kept*); without skips twelve sublayers in a row have overwritten
# nearly all of them (*loss of information*), and a gradient that goes back through such a state tells the first layers little. After training,
# the model with skips gives some of them up: it needs the symbol to predict, not the one that it read.
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {
        "question": "What share of the symbols did the six-layer model with skips get right on held-out data?",
        "number": arms["pre_norm"]["score"],
        "tolerance": 0.05,
    },
    {
        "question": "Why do both variants run with the same seeds?",
        "choices": ["to save time", "so that a pair differs in the skip alone and chance cancels", "because the store needs it"],
        "answer": 1,
    },
    {
        "question": "The verdict says better when the interval of the paired difference in loss ...",
        "choices": ["holds zero", "lies wholly below zero", "lies wholly above zero"],
        "answer": 1 if difference["high"] < 0 and comparison["verdict"] == "better" else 0,
    },
    {
        "question": "Which model had the more even gradient over depth before training?",
        "choices": list(names.values()),
        "answer": list(names).index(min(steadier, key=steadier.get)),
    },
]
