"""hf: targets: built from configurations alone, on the meta device, with inputs that their forward takes."""

import json
import pathlib

import pytest
import torch

pytest.importorskip("transformers")

from skipway._errors import TargetError
from skipway.targets import resolve

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60}


@pytest.mark.parametrize(("text", "cls", "inputs"), [
    ("hf:llama", "LlamaForCausalLM", {"input_ids": (2, 16)}),
    ("hf:bert", "BertForMaskedLM", {"input_ids": (2, 16)}),
    ("hf:gpt2", "GPT2LMHeadModel", {"input_ids": (2, 16)}),
    ("hf:t5", "T5ForConditionalGeneration", {"input_ids": (2, 16), "decoder_input_ids": (2, 12)}),
    ("hf:vit", "ViTForImageClassification", {"pixel_values": (2, 3, 224, 224)}),
    ("hf:whisper", "WhisperForConditionalGeneration", {"input_features": (2, 80, 3000), "decoder_input_ids": (2, 12)}),
    ("hf:wav2vec2", None, {"input_values": (2, 16000)}),
    ("hf:clip", "CLIPModel", {"input_ids": (2, 16), "pixel_values": (2, 3, 224, 224)}),
])
def test_class_and_inputs(text: str, cls: str | None, inputs: dict[str, tuple[int, ...]]) -> None:
    target = resolve(text)
    assert cls is None or type(target.model).__name__ == cls
    assert {k: tuple(v.shape) for k, v in target.kwargs.items()} == inputs and target.args == ()
    assert target.abstract
    assert not target.model.training
    assert getattr(target.model.config, "use_cache", False) is False


def test_llama_has_its_published_size() -> None:
    assert sum(p.numel() for p in resolve("hf:llama").model.parameters()) == 6_738_415_616


@pytest.mark.parametrize("text", ["hf:llama", "hf:bert", "hf:t5", "hf:vit", "hf:mixtral", "hf:gemma3_text", "hf:deepseek_v3"])
def test_a_small_real_copy_runs(text: str) -> None:
    small = resolve(text).shrunken()
    assert small is not None
    assert sum(p.numel() for p in small.model.parameters()) < 300_000_000
    assert not any(p.is_meta for p in small.model.parameters())
    assert small.notes[0].startswith("a small real copy with random weights was run instead (")
    with torch.no_grad():
        small.model(*small.args, **small.kwargs)


def test_config_values_take_the_type_of_the_field() -> None:
    config = resolve("hf:llama", config=["num_hidden_layers=3", "hidden_act=gelu", "rms_norm_eps=1", "tie_word_embeddings=true", "pad_token_id=5"])
    fields = vars(config.model.config)
    wanted = {"num_hidden_layers": 3, "hidden_act": "gelu", "rms_norm_eps": 1.0, "tie_word_embeddings": True, "pad_token_id": 5}
    assert {name: fields[name] for name in wanted} == wanted
    assert type(fields["rms_norm_eps"]) is float


def test_config_inside_a_config() -> None:
    assert resolve("hf:clip", config=["text_config.num_hidden_layers=2"]).model.config.text_config.num_hidden_layers == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("config", "part"), [
    ("num_hidden_layer=3", "has no field 'num_hidden_layer'; near it: num_hidden_layers"),
    ("num_hidden_layers", "want KEY=VALUE"),
    ("num_hidden_layers=many", "got 'many', want int as it is now (32)"),
    ("num_hidden_layers=1.5", "got float 1.5, want int"),
    ("tie_word_embeddings=3", "got int 3, want bool"),
    ("text_config.depth=3", "has no field 'text_config.depth'"),
    ("num_attention_heads=0", "cannot be built from this configuration"),
])
def test_bad_config_values(config: str, part: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve("hf:llama", config=[config])
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("as_folder", [True, False])
def test_local_configuration(tmp_path: pathlib.Path, as_folder: bool) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "pad_token_id": 0, **SMALL}))
    target = resolve(f"hf:{tmp_path if as_folder else file}")
    assert type(target.model).__name__ == "LlamaForSequenceClassification"
    assert target.model.config.hidden_size == 32  # type: ignore[union-attr]


@pytest.mark.parametrize(("fields", "part"), [
    ({"model_type": "lama"}, "model_type 'lama', which this transformers does not know; near it: llama"),
    ({"model_type": "own", "auto_map": {"AutoModel": "code.Model"}}, "the code that came with it is never run"),
    ({}, "model_type None"),
    ([1], "model_type None"),
    (None, "is not JSON"),
])
def test_bad_local_configuration(tmp_path: pathlib.Path, fields: object, part: str) -> None:
    file = tmp_path / "config.json"
    file.write_text("not json" if fields is None else json.dumps(fields))
    with pytest.raises(TargetError) as caught:
        resolve(f"hf:{file}")
    assert part in str(caught.value)


@pytest.mark.parametrize(("text", "part"), [
    ("hf:lama", "has no model type 'lama'; near it: llama"),
    ("hf:", "has no model type ''"),
    ("hf:meta/llama", "no such file 'meta/llama'"),
    ("hf:nothing.json", "no such file 'nothing.json'"),
])
def test_unknown_names(text: str, part: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve(text)
    assert part in str(caught.value)


def test_given_inputs_are_used() -> None:
    target = resolve("hf:llama", inputs=["input_ids=int64[1,4]<10"], config=["num_hidden_layers=1"])
    assert list(target.kwargs) == ["input_ids"] and target.kwargs["input_ids"].shape == (1, 4)


def test_inputs_that_cannot_be_guessed_are_named() -> None:
    with pytest.raises(TargetError, match=r"its forward needs inference_session, which cannot be guessed; give all: --input"):
        resolve("hf:sam2_video")
