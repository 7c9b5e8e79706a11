"""GPT-3: no class of transformers; test_models_apart.py holds it against gpt2 and a loop."""

CASES: list[dict[str, object]] = []
