# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 14. Reading real models
#
# Seventeen systems from 2015 to today, in one table, made by building each in a tiny size with its published wiring and reading that wiring
# off. Then four of them side by side.

# %%
import html

import matplotlib.pyplot as plt
import torch

import skipway
from skipway import ArchitectureNotPublished
from skipway.report import svg

# %% tags=["hide"]
INK = plt.rcParams["text.color"]

# %%
_ = torch.manual_seed(0)

# %% [markdown]
# ## How to read one
#
# Ask five questions of any model: how many residuals has a block? Where does the norm stand? Which norm? What is the shortcut? Is there a final
# norm? `skipway.trace` answers all of them from one run:

# %%
SYSTEMS = {
    "ResNet": ("resnet", 2015),
    "Transformer": ("transformer", 2017),
    "GPT": ("gpt", 2018),
    "BERT": ("bert", 2018),
    "GPT-2": ("gpt2", 2019),
    "RoBERTa": ("roberta", 2019),
    "ALBERT": ("albert", 2019),
    "T5": ("t5", 2019),
    "GPT-3": ("gpt3", 2020),
    "Vision Transformer": ("vit", 2020),
    "LLaMA": ("llama", 2023),
    "GPT-4": ("gpt4", 2023),
    "Mistral": ("mistral", 2023),
    "Phi": ("phi", 2023),
    "Qwen": ("qwen", 2023),
    "DeepSeek": ("deepseek", 2024),
    "Gemma": ("gemma", 2024),
}


def traced(name: str) -> skipway.Wiring:
    """The wiring of the tiny size of a model."""
    model = skipway.models.build(name)
    if name in ("vit", "resnet"):
        side = getattr(model.config, "image", 32)
        return skipway.trace(model, pixel_values=torch.randn(1, 3, side, side))
    ids = torch.randint(0, 50, (1, 8))
    more = {"decoder_input_ids": ids} if name in ("t5", "transformer") else {}
    return skipway.trace(model, input_ids=ids, **more)


llama = traced("llama")
print(llama.draw())
stream = llama.streams[0]
site = stream.sites[0]
print(f"placement {site.placement}, norm {site.norm}, shortcut {site.shortcut}, gain {site.gain}, final norm {stream.final_norm}")
assert (site.placement, site.norm, site.shortcut, site.gain) == ("pre", "RMSNorm", "identity", 1)

# %% [markdown]
# ## The systems
#
# One row a stream.

# %%
wirings: dict[str, skipway.Wiring] = {}
rows: list[tuple[str, ...]] = []
unknown = ""
for system, (name, year) in SYSTEMS.items():
    try:
        wirings[system] = traced(name)
    except ArchitectureNotPublished as error:
        unknown = str(error)
        rows.append((system, str(year), *("not published",) * 6))
        continue
    for s in (s for s in wirings[system].streams if s.main):
        branches = list(dict.fromkeys(" + ".join(b.kind.replace("_", "-") for b in site.branches) for site in s.sites))
        values = [{site.placement for site in s.sites}, {site.norm or "none" for site in s.sites}, {site.shortcut for site in s.sites}]
        rows.append((system, str(year), s.name, ", ".join(branches), *(", ".join(sorted(v)) for v in values), "yes" if s.final_norm else "no"))


class Shown:
    """A piece of HTML that a notebook displays and a terminal prints as plain text."""

    def __init__(self, markup: str, text: str) -> None:
        self.markup, self.text = markup, text

    def _repr_html_(self) -> str:
        return self.markup

    def __repr__(self) -> str:
        return self.text


HEAD = ("system", "year", "stream", "branches", "placement", "norm", "shortcut", "final norm")
body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
table = Shown(
    "<table><thead><tr>" + "".join(f'<th scope="col">{h}</th>' for h in HEAD) + f"</tr></thead><tbody>{body}</tbody></table>",
    "\n".join(" | ".join(row) for row in (HEAD, *rows)),
)
table

# %% tags=["hide"]
print(table)  # for those who run this file in a terminal

# %%
by_system = {row[0]: row for row in rows}
assert len(SYSTEMS) == 17 and len({row[0] for row in rows}) == 17
post = [name for name in wirings if by_system[name][4] == "post"]
before = [name for name in wirings if by_system[name][4] == "pre"]
with torch.device("meta"):
    first_gemma = skipway.trace(skipway.models.build("gemma", size="1-2b"), input_ids=torch.zeros(1, 8, dtype=torch.long))
print("Gemma 1:  ", {site.placement for site in first_gemma.sites})
print("post-norm:", post)
print("pre-norm: ", before)
assert {"Transformer", "GPT", "BERT", "RoBERTa", "ALBERT"} == set(post), post
assert {"GPT-2", "GPT-3", "T5", "Vision Transformer", "LLaMA", "Mistral", "Qwen", "DeepSeek", "Phi"} == set(before), before
assert by_system["Gemma"][4] == "sandwich", by_system["Gemma"]
assert {site.placement for site in first_gemma.sites} == {"pre"}

# %% [markdown]
# The line is sharp: up to 2018, and in the models that copy BERT, the norm is on the stream. From GPT-2 on it is in the branch. From T5 and
# LLaMA on it is RMSNorm in most language models. Gemma norms both ends of the branch since its second generation, which the tiny size follows;
# the first was pre-norm. All transformers have an identity shortcut; only ResNet needs a projection. What the table calls `output` for ResNet
# is the batch norm that ends the branch, before the add.
#
# ## GPT-4: nobody outside can know
#
# Its architecture was never published. skipway does not guess:

# %%
print(unknown)
assert "never published" in unknown, unknown
assert by_system["GPT-4"][2] == "not published"

# %% [markdown]
# ## ALBERT shares, Phi is parallel
#
# Two wirings that the table does not show. ALBERT runs *one* block at every depth, so its adds share their branches. Phi computes attention and
# FFN from the same state and adds both at once, one add a block:

# %%
shared = [site.branches[0].modules[0] for site in wirings["ALBERT"].sites]
parallel = {name: any(site.parallel for site in w.sites) for name, w in wirings.items()}
branches_of_phi = [len(site.branches) for site in wirings["Phi"].sites]
print("ALBERT: module of each branch:", shared)
print("parallel:", [name for name, value in parallel.items() if value], "branches at each add of Phi:", branches_of_phi)
assert shared[:2] == shared[2:], shared
assert [name for name, value in parallel.items() if value] == ["Phi"], parallel
assert set(branches_of_phi) == {2}, branches_of_phi

# %% [markdown]
# ## Side by side
#
# Post-norm, pre-norm, sandwich and parallel: the same parts in four wirings. The thick line is the stream.

# %%
chosen = {"BERT": "norm on the stream", "GPT-2": "norm in the branch", "Gemma": "a norm at both ends of the branch", "Phi": "two branches, one add"}
figures = "".join(
    f'<figure style="margin:0">{svg.drawing(wirings[name].to_dict(), prefix=f"l14-{name.lower()}")}<figcaption>{name}: {told}</figcaption></figure>'
    for name, told in chosen.items()
)
drawn = Shown(
    f'<style>{svg.style(dark=True)}</style><div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">{figures}</div>',
    "\n\n".join(f"{name}: {told}\n{wirings[name].draw()}" for name, told in chosen.items()),
)
drawn

# %% tags=["hide"]
print(drawn)

# %% [markdown]
# ## How many adds the real sizes have
#
# The tiny models have two blocks. The published sizes are built without memory, on the meta device, and counted:

# %%
sizes = {"BERT base": ("bert", "base"), "GPT-2 124M": ("gpt2", "124m"), "LLaMA 7B": ("llama", "1-7b"), "Phi-1.5": ("phi", "1.5")}
counted = {}
with torch.device("meta"):
    for label, (name, size) in sizes.items():
        model = skipway.models.build(name, size=size)
        counted[label] = len(skipway.trace(model, input_ids=torch.zeros(1, 8, dtype=torch.long)).sites)
print(counted)
assert counted == {"BERT base": 24, "GPT-2 124M": 24, "LLaMA 7B": 64, "Phi-1.5": 24}, counted

fig = plt.Figure(figsize=(6.4, 2.6), layout="constrained")
ax = fig.subplots()
bars = ax.barh(list(counted), list(counted.values()), color="C0")
ax.bar_label(bars, padding=3, color=INK)
ax.invert_yaxis()
ax.set(xlabel="residual adds", title="Adds from stem to head")
fig

# %% [markdown]
# ## Knowledge check

# %% tags=["check"]
questions = [
    {"question": "How many of the sixteen systems whose wiring is known are post-norm?", "number": len(post), "tolerance": 0},
    {
        "question": "Which of these norms both ends of a branch?",
        "choices": ["BERT", "GPT-2", "Gemma", "Phi"],
        "answer": next(k for k, name in enumerate(chosen) if by_system[name][4] == "sandwich"),
    },
    {"question": "How many residual adds has LLaMA 7B?", "number": counted["LLaMA 7B"], "tolerance": 0},
    {
        "question": "Where do GPT-4's norms stand?",
        "choices": ["before the branch", "behind the add", "it was never published"],
        "answer": 2 if unknown else 0,
    },
    {
        "question": "Phi has 24 blocks. Why not 48 adds?",
        "choices": ["it leaves the FFN out", "attention and FFN are added at once", "its adds are not traced"],
        "answer": 1 if set(branches_of_phi) == {2} else 0,
    },
]
