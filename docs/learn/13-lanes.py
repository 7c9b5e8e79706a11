# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 13. Lanes: from hyper-connections to mHC
#
# A plain stream is one vector for each token. Hyper-connections (2024) give it several **lanes** and let the network learn how branches read
# them, write to them and mix them. mHC (2025) keeps the mixing in bounds. DeepSeek-V4 is built on it. This lesson follows the idea from the
# formula to a running model.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import skipway
from skipway import schemes
from skipway.ops.sinkhorn import sinkhorn

# %%
dim, lanes = 32, 4
torch.manual_seed(0)
x = torch.randn(2, 6, dim)


def branches(count: int) -> list[nn.Module]:
    """The same branches at each call."""
    torch.manual_seed(1)
    return [skipway.nn.FeedForward(dim, 64) for _ in range(count)]


# %% [markdown]
# ## A stream of n lanes
#
# The stream $H$ holds $n$ states $H_1, \dots, H_n$ for each token. At the start they are $n$ copies of $x$, at the end their mean goes on. A
# sublayer reads one weighted sum, mixes all lanes, and writes to each:
#
# $$\text{read:}\quad N\Big(\sum_i a_i H_i\Big) \qquad\qquad \text{write:}\quad H_j \leftarrow \sum_i A_{ji} H_i + b_j\, y$$
#
# $a$ (n numbers), $A$ (n by n, the *mixer*) and $b$ (n numbers) are learned. By hand, with weights that are no longer those of the start,
# beside skipway's scheme:

# %%
scheme = schemes.load("hyper")(dim, lanes=lanes, dynamic=False)
with torch.no_grad():
    for p in (scheme.read_weight, scheme.mixer, scheme.write_weight):
        p.add_(0.2 * torch.randn_like(p))
branch = branches(1)[0]
H = scheme.enter(x)
print("stream:", tuple(H.shape), "= (lanes, batch, token, d_model)")
H = H + 0.1 * torch.randn_like(H)

y = branch(scheme.norm(torch.einsum("i,i...->...", scheme.read_weight, H)))
by_hand = torch.einsum("ij,i...->j...", scheme.mixer, H) + scheme.write_weight[:, None, None, None] * y
inputs, memo = scheme.read(H)
error = float((by_hand - scheme.write(H, branch(inputs), memo)).detach().abs().max())
print(f"formula beside scheme: {error:.1e} apart")
assert error < 1e-5, error
assert tuple(scheme.enter(x).shape) == (lanes, *x.shape)

# %% [markdown]
# ## At the start it is pre-norm
#
# The start is $A = I$, $b = 1$, and $a$ reads one lane. Then all lanes stay equal and each sublayer does what pre-norm does:

# %%
depth = 12
pre = skipway.nn.Stack(branches(depth), dim, "pre_norm")
hyper = skipway.nn.Stack(branches(depth), dim, "hyper", lanes=lanes)
start = float((pre(x) - hyper(x)).detach().abs().max())
wiring = skipway.trace(hyper, x)
extra = sum(p.numel() for p in hyper.parameters()) - sum(p.numel() for p in pre.parameters())
print(f"hyper beside pre_norm through {depth} sublayers: {start} apart; lanes that trace finds: {wiring.streams[0].lanes}; parameters more: {extra}")
assert start < 1e-5, start
assert wiring.streams[0].lanes == lanes, wiring.streams[0].lanes

# %% [markdown]
# So nothing is lost at the start, and training decides what the lanes are used for.
#
# ## What goes wrong: a product of free mixers
#
# The identity path through $S$ sublayers is now the matrix product $A_S \cdots A_1$. A single skip has the gain 1; nothing keeps that product
# there. Its gain is the largest row sum of absolute values. For mixers that are the identity plus a little noise:

# %%
sublayers, noise = 60, 0.3
generator = torch.Generator().manual_seed(2)
free = torch.eye(lanes, dtype=torch.float64) + noise * torch.randn(sublayers, lanes, lanes, generator=generator, dtype=torch.float64)
logits = 3 * torch.eye(lanes, dtype=torch.float64) + torch.randn(sublayers, lanes, lanes, generator=generator, dtype=torch.float64)
bounded = sinkhorn(logits)


def gains(mixers: torch.Tensor) -> list[float]:
    """Largest absolute row sum of the product of all mixers so far."""
    product, found = torch.eye(lanes, dtype=torch.float64), []
    for mixer in mixers:
        product = mixer @ product
        found.append(float(product.abs().sum(1).max()))
    return found


curves = {"free mixers": gains(free), "doubly stochastic mixers": gains(bounded)}
fig = plt.Figure(figsize=(6.4, 3.2), layout="constrained")
ax = fig.subplots()
for (name, values), style, color in zip(curves.items(), ("--", "-"), ("C2", "C0")):
    ax.semilogy(range(1, sublayers + 1), values, style, color=color, label=name)
ax.set(xlabel="sublayers", ylabel="gain of the identity path", title="Product of mixers over depth")
ax.legend()
fig

# %%
ends = {name: values[-1] for name, values in curves.items()}
print({name: f"{value:.4g}" for name, value in ends.items()})
assert ends["free mixers"] > 3, ends
assert abs(ends["doubly stochastic mixers"] - 1) < 1e-9, ends

# %% [markdown]
# ## What mends it: doubly stochastic mixers
#
# A matrix is *doubly stochastic* when all entries are at least 0 and each row and each column sums to 1. Two facts make it fit: the product of
# two such matrices is another one, and none makes any signal larger. So the product over any depth has gain 1, forward (rows) and backward
# (columns). That is the manifold of mHC.
#
# **Sinkhorn** makes one of any matrix: take the exponential, then divide columns and rows by their sums in turn.

# %%
torch.manual_seed(3)
start_from = torch.randn(lanes, lanes, dtype=torch.float64)
matrix = start_from.exp()
errors = []
for _ in range(20):
    matrix = matrix / matrix.sum(0, keepdim=True)
    matrix = matrix / matrix.sum(1, keepdim=True)
    errors.append(float((matrix.sum(0) - 1).abs().max()))
same = float((matrix - sinkhorn(start_from, 20)).abs().max())
print(
    f"column sums off 1 by {errors[0]:.1e} after 1 round, {errors[4]:.1e} after 5, {errors[-1]:.1e} after 20; beside skipway.ops.sinkhorn: {same:.1e}"
)
assert errors[-1] < 1e-6 < errors[0], errors
assert same < 1e-12, same

# %% [markdown]
# ## In a running model
#
# `skipway.probe` shows the mixer of each site: its row and column sums, and the gain of all mixers up to it. The scheme `mhc` makes a mixer for
# each token; the numbers are of the mean over tokens. Rows are divided last, so they sum to 1 at once; how well the columns do depends on the
# number of rounds and on how far the mixer is from its start. The second model's mixers were pushed away from the start, as long training may
# do:


# %%
def worst(pushed: float, iterations: int = 20) -> tuple[float, float, float]:
    """Largest distance of a row sum and of a column sum from 1, and the gain from start to end."""
    model = skipway.nn.Stack(branches(depth), dim, "mhc", lanes=lanes, iterations=iterations)
    torch.manual_seed(4)
    with torch.no_grad():
        for layer in model.layers:
            layer.scheme.bias[2 * lanes :] += pushed * torch.randn(lanes * lanes)
    found = [r.lanes for r in skipway.probe(model, x).rows]
    off = [max(abs(s - 1) for one in found for s in one[name]) for name in ("row_sums", "column_sums")]
    return off[0], off[1], found[-1]["gain_from_start"]


cases = {"at the start": worst(0.0), "pushed, 20 rounds": worst(1.5), "pushed, 200 rounds": worst(1.5, 200)}
for name, (row_off, column_off, gain) in cases.items():
    print(f"{name:20} rows off 1 by {row_off:.1e}, columns by {column_off:.1e}; gain from start to end {gain:.6f}")
assert all(row_off < 1e-5 and abs(gain - 1) < 1e-4 for row_off, _, gain in cases.values()), cases
assert cases["at the start"][1] < 1e-3, cases
assert cases["pushed, 200 rounds"][1] < cases["pushed, 20 rounds"][1], cases

# %% [markdown]
# Rows keep the forward gain at 1, columns the gain of the gradient. `skipway check` holds a model to both: a mixer that should be doubly
# stochastic and is off by more than 1e-3 is SKW803, one that gets no gradient is SKW802, and one that is computed and never used is SKW801.
#
# ## The price: traffic
#
# Lanes cost almost no multiplications. What they cost is memory traffic, for all lanes are read and written at each sublayer. In units of one
# state of a token:

# %%
costs = {}
for name, options in (("pre_norm", {}), ("hyper", {"lanes": 4}), ("mhc", {"lanes": 4}), ("mhc", {"lanes": 2})):
    built = schemes.load(name)(dim, **options)
    label = f"{name}, {options['lanes']} lanes" if options else name
    costs[label] = (built.traffic.reads, built.traffic.writes)
    print(f"{label:16} reads {costs[label][0]:4g}  writes {costs[label][1]:4g}")

fig = plt.Figure(figsize=(6.4, 2.6), layout="constrained")
ax = fig.subplots()
ax.barh(list(costs), [c[0] for c in costs.values()], color="C0", label="reads")
ax.barh(list(costs), [c[1] for c in costs.values()], left=[c[0] for c in costs.values()], color="C1", hatch="//", label="writes")
ax.invert_yaxis()
ax.set(xlabel="states of a token per sublayer", title="Memory traffic of the stream")
ax.legend()
fig

# %%
more = sum(costs["mhc, 4 lanes"]) / sum(costs["pre_norm"])
print(f"mhc with four lanes moves {more:.1f} times what pre-norm moves")
assert more > 2, costs

# %% [markdown]
# ## A model built on lanes
#
# DeepSeek-V4 in a tiny size: one stream of four lanes, every shortcut `mixed`.

# %%
v4 = skipway.trace(skipway.models.build("deepseek-v4"), input_ids=torch.randint(0, 50, (1, 8)))
stream = next(s for s in v4.streams if s.main)
print(
    f"{stream.lanes} lanes, {len(stream.sites)} sites, shortcuts {sorted({s.shortcut for s in stream.sites})}, "
    f"scale {sorted({s.scale for s in stream.sites})}"
)
print(v4.draw())
assert stream.lanes == 4 and {s.shortcut for s in stream.sites} == {"mixed"}

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "What is the gain of the product of 60 doubly stochastic mixers?", "number": ends["doubly stochastic mixers"], "tolerance": 0.05},
    {
        "question": "By how much does hyper differ from pre-norm at its start?",
        "choices": ["not at all, up to rounding", "by its lanes", "by a factor n"],
        "answer": 0 if start < 1e-5 else 1,
    },
    {
        "question": "What do four lanes of mhc cost most?",
        "choices": ["multiplications", "memory traffic", "parameters"],
        "answer": 1 if more > 2 else 0,
    },
    {"question": "A matrix has rows that sum to 1 and columns that do not. Is it doubly stochastic?", "choices": ["yes", "no"], "answer": 1},
]
