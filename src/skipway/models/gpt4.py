"""gpt4: never published, so it cannot be built.

What is public is in the message that `build` raises.
Source: OpenAI, GPT-4 Technical Report, 2023, arXiv 2303.08774.
"""

NOT_PUBLISHED = (
    "gpt4: its architecture was never published. Public, by its technical report (arXiv 2303.08774) and its announcement: it is a transformer "
    "trained to predict the next token and tuned with human feedback, it takes text and images, it was offered with contexts of 8192 and 32768 "
    "tokens, and its loss was predicted from smaller runs. Not public, by the report's own words: architecture and size, hardware, training compute, "
    "data and method; so nobody can say where its norms stand, how many blocks it has or whether they hold experts. gpt3 is the last of its line "
    "with a table of sizes, gpt_oss the open architecture of the same house")
