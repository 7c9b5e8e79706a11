# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 12. Depth: what goes wrong at 100 layers, and which schemes mend it
#
# Lessons 5 and 11 stopped at 32 and 6 layers. At 100 the small factors of each layer become large ones. This lesson builds 100 sublayers under
# several residual rules, looks at them before training, and then trains them all for the same few steps.

# %%
import math

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Patch
from torch import nn

import skipway
from skipway.lab import tasks

# %% tags=["hide"]
INK = plt.rcParams["text.color"]

# %%
task = tasks.build("mlp_depth")
dim, depth, steps = 24, 100, 80

# %% [markdown]
# ## One branch, many rules
#
# The branch is $F(x) = W_2\,\mathrm{relu}(W_1 x)$ with weights of the usual size (He et al.). Only the rule around it changes. Some rules also
# say how the weights should start; `Stack` does that.


# %%
class Branch(nn.Module):
    """W_2 relu(W_1 x)."""

    role = "ffn"

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)
        for linear in (self.first, self.second):
            nn.init.kaiming_normal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def weights(self, kind: str) -> list[torch.Tensor]:
        """Its matrices by kind, for rules that set their start."""
        return {"input": [self.first.weight], "output": [self.second.weight]}.get(kind, [])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


RULES = {
    "no skip": ("none", "F(x)"),
    "plain": ("plain", "x + F(x)"),
    "post-norm": ("post_norm", "N(x + F(x))"),
    "pre-norm": ("pre_norm", "x + F(N(x))"),
    "DeepNorm": ("deepnorm", "N(alpha x + F(x)), F starts small"),
    "ReZero": ("rezero", "x + a F(x), a = 0 at the start"),
    "LayerNorm scaling": ("layer_norm_scaling", "x + F(N(x) / sqrt(l))"),
    "Depth-muP": ("depth_mup", "x + F(x) / sqrt(S)"),
}


def build(rule: str) -> nn.Sequential:
    """100 sublayers between an input layer and a head."""
    torch.manual_seed(0)
    return nn.Sequential(task.embed(dim), skipway.nn.Stack([Branch() for _ in range(depth)], dim, RULES[rule][0]), nn.Linear(dim, task.classes))


# %% [markdown]
# ## Before training: the size of the stream, and of the gradient

# %%
batch = task.batch("train", 0, 0, 64)
streams: dict[str, list[float]] = {}
gradients: dict[str, list[float]] = {}
for rule in RULES:
    model = build(rule)
    states: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(lambda module, args, out, states=states: states.append(out[0])) for layer in model[1].layers]
    loss = nn.functional.cross_entropy(model(batch.inputs), batch.targets)
    for hook in hooks:
        hook.remove()
    streams[rule] = [float(s.detach().double().square().mean().sqrt()) for s in states]
    gradients[rule] = [float(g.double().square().mean().sqrt()) for g in torch.autograd.grad(loss, states)]

styles = dict(zip(RULES, (("C2", ":"), ("C3", ":"), ("C2", "--"), ("C0", "-"), ("C1", "-"), ("C3", "-."), ("C5", "--"), (INK, "-."))))
fig = plt.Figure(figsize=(8, 3.6), layout="constrained")
left, right = fig.subplots(1, 2)
for rule, (color, style) in styles.items():
    left.semilogy(streams[rule], color=color, linestyle=style, label=rule)
    right.semilogy([max(g, 1e-12) / max(gradients[rule][-1], 1e-12) for g in gradients[rule]], color=color, linestyle=style)
left.set(xlabel="sublayer", ylabel="RMS", title="stream", ylim=(1e-2, 1e6))
right.set(xlabel="sublayer", ylabel="gradient / gradient at the end", title="gradient", ylim=(1e-8, 1e8))
fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
fig

# %%
print(f"{'rule':18} {'formula':34} {'stream at the end':>18} {'gradient first / last':>22}")
change = {}
for rule, (_, formula) in RULES.items():
    change[rule] = gradients[rule][0] / max(gradients[rule][-1], 1e-300)
    print(f"{rule:18} {formula:34} {streams[rule][-1]:18.3g} {change[rule]:22.3g}")
assert streams["plain"][-1] > 1e8, streams["plain"][-1]
assert streams["ReZero"][-1] < 10 and streams["Depth-muP"][-1] < 100 and streams["pre-norm"][-1] < 100
assert 0.01 < change["DeepNorm"] < 100 and 0.01 < change["ReZero"] < 100, change

# %% [markdown]
# What grows or shrinks does so by a steady factor for each sublayer, and 100 factors make a large number:

# %%
factor = (streams["plain"][-1] / streams["plain"][0]) ** (1 / (depth - 1))
print(f"plain: times {factor:.2f} at each sublayer, {factor:.2f}^99 = {factor**99:.1e}")
assert 1.2 < factor < 3, factor

# %% [markdown]
# ## After 80 steps


# %%
def train(rule: str) -> list[float]:
    """Loss by step, with clipping and one learning rate for all."""
    model = build(rule)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(steps):
        rows = task.batch("train", 0, step, 64)
        loss = nn.functional.cross_entropy(model(rows.inputs), rows.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


guess = math.log(task.classes)
final = {rule: sum(train(rule)[-10:]) / 10 for rule in RULES}
for rule, value in final.items():
    print(
        f"{rule:18} {value:10.3g}  {'learned' if value < 0.75 * guess else 'not better than a guess' if value > 0.95 * guess else 'begins to learn'}"
    )

fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
shown = [min(value, 2.0) for value in final.values()]
bars = ax.barh(list(final), shown, color=["C0" if v < 0.75 * guess else "C1" for v in final.values()])
ax.bar_label(bars, [f"{v:.3g}" for v in final.values()], padding=3, color=INK)
ax.axvline(guess, color=INK, linestyle="--")
ax.invert_yaxis()
ax.legend(handles=[Patch(color="C0", label="learned"), Patch(color="C1", label="did not learn")], loc="lower right")
ax.set(xlabel="loss of the last ten steps (dashed: blind guess; bars are cut at 2)", title="100 sublayers after 80 steps", xlim=(0, 2.4))
fig

# %%
failed = [rule for rule, value in final.items() if value > 0.95 * guess]
learned = [rule for rule, value in final.items() if value < 0.75 * guess]
print("failed:", failed, " learned:", learned)
assert {"no skip", "plain", "post-norm"} <= set(failed), final
assert {"pre-norm", "DeepNorm", "ReZero", "LayerNorm scaling", "Depth-muP"} <= set(learned), final

# %% [markdown]
# Three ways fail and each shows a reason:
#
# * **no skip**: the state is multiplied by 100 random layers;
# * **plain**: the skip is there and nothing bounds the size, so skips do not replace norms or small starts;
# * **post-norm**: size is bounded, but each branch writes more than the stream it joins holds (below), and the norm of the sum then makes the
#   old state smaller (lesson 7).
#
# And three ideas mend it: **norm the branch's input** and leave the stream alone (pre-norm, LayerNorm scaling), **strengthen the shortcut**
# against the branch (DeepNorm), or **start the branch small**: at zero (ReZero) or at $1/\sqrt S$ (Depth-muP). In all of them the shortcut
# carries more than the branch writes.


# %%
def weight(rule: str) -> float:
    """Size of what the middle branch writes beside the state it joins."""
    table = skipway.probe(build(rule), batch.inputs)
    row = table.rows[depth // 2]
    return row.ratio


ratios = {rule: weight(rule) for rule in ("plain", "post-norm", "pre-norm", "DeepNorm", "ReZero", "Depth-muP")}
print({rule: f"{value:.3g}" for rule, value in ratios.items()})
mended, broken = max(ratios[r] for r in ("pre-norm", "DeepNorm", "ReZero", "Depth-muP")), min(ratios["plain"], ratios["post-norm"])
assert mended < broken, ratios

# %% [markdown]
# ## Deep models that train
#
# The command line gives the same comparison with several seeds and a verdict, in about five minutes on two cores: `skipway compare mlp_depth
# --depth 100 --variants post_norm,deepnorm,rezero` (with `--dry-run` it says how long it will take, and stops there). `skipway check` has a note
# for such designs (SKW307, deep post-norm without residual scaling).
#
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "How many of the eight rules learned the task at 100 sublayers?", "number": len(learned), "tolerance": 0},
    {
        "question": "Which of these failed although it has a skip and no vanishing identity path?",
        "choices": ["plain", "pre-norm", "ReZero"],
        "answer": 0 if "plain" in failed else 1,
    },
    {
        "question": "What do the rules that work have in common?",
        "choices": ["more parameters", "the shortcut carries more than a branch writes", "a norm on the stream"],
        "answer": 1 if mended < broken else 2,
    },
    {"question": "How large is the middle branch's write beside its stream under ReZero at the start?", "number": ratios["ReZero"], "tolerance": 0},
]
