"""hf: targets with weights: safetensors whole and sharded, GGUF, and never a pickle."""

import importlib.util
import json
import pathlib
from typing import Any

import pytest
import torch

from skipway._errors import TargetError
from skipway.targets import resolve

transformers = pytest.importorskip("transformers")

SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60,
         "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}


def model(kind: str = "llama") -> Any:
    torch.manual_seed(3)
    config = transformers.CONFIG_MAPPING[kind](**SIZES)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def same(found: Any, wanted: Any) -> None:
    """All parameters are equal to the last bit, by name."""
    theirs = dict(wanted.named_parameters())
    assert {n: p.dtype for n, p in found.named_parameters()} == {n: p.dtype for n, p in theirs.items()}
    assert all(torch.equal(p, theirs[n]) for n, p in found.named_parameters())


@pytest.mark.parametrize("shard", ["1GB", "20KB"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_folder_with_safetensors(tmp_path: pathlib.Path, shard: str, dtype: torch.dtype) -> None:
    made = model().to(dtype)
    made.save_pretrained(tmp_path, max_shard_size=shard)
    files = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert (len(files) > 1) == (shard == "20KB")
    target = resolve(f"hf:{tmp_path}")
    assert target.abstract and target.notes == ()
    loaded = target.loaded()
    assert loaded is not None and not loaded.abstract and not loaded.model.training
    same(loaded.model, made)
    said = "model.safetensors" if shard == "1GB" else f"{len(files)} safetensors files"
    assert loaded.weights == said and loaded.notes == (f"weights: {said}, {str(dtype).removeprefix('torch.')}",)
    assert getattr(loaded.model.config, "use_cache") is False       # noqa: B009
    same(target.with_numbers().model, made)


def test_a_file_of_a_folder_names_the_folder(tmp_path: pathlib.Path) -> None:
    made = model()
    made.save_pretrained(tmp_path)
    same(resolve(f"hf:{tmp_path}/model.safetensors").with_numbers().model, made)


def test_what_the_checkpoint_lacks_is_said_and_is_the_same_each_time(tmp_path: pathlib.Path) -> None:
    model().model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    first, second = (resolve(f"hf:{tmp_path}").with_numbers() for _ in range(2))
    assert "weights: 1 tensors of the model are not in the checkpoint and are random: lm_head.weight" in first.notes
    same(first.model, second.model)


def test_other_sizes_than_the_checkpoint(tmp_path: pathlib.Path) -> None:
    model().save_pretrained(tmp_path)
    fewer = resolve(f"hf:{tmp_path}", config=["num_hidden_layers=1"]).with_numbers()
    assert len(fewer.model.model.layers) == 1 and any("tensors of the checkpoint are not in LlamaForCausalLM" in n for n in fewer.notes)
    with pytest.raises(TargetError, match=r"model\.safetensors cannot be loaded into LlamaForCausalLM") as caught:
        resolve(f"hf:{tmp_path}", config=["intermediate_size=52"]).with_numbers()
    assert "\n" not in str(caught.value)


def gguf(path: pathlib.Path, made: Any) -> None:
    """The model as llama.cpp writes it: query and key rows in the other order of rotary halves."""
    pytest.importorskip("accelerate")
    writer = pytest.importorskip("gguf").GGUFWriter(path, "llama")
    c = made.config
    for name, value in {"context_length": 64, "embedding_length": c.hidden_size, "block_count": c.num_hidden_layers,
                        "feed_forward_length": c.intermediate_size, "head_count": c.num_attention_heads, "head_count_kv": c.num_key_value_heads,
                        "layer_norm_rms_eps": c.rms_norm_eps, "rope_freq_base": 10000.0, "vocab_size": c.vocab_size}.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_name("small")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"w{i}" for i in range(c.vocab_size)])
    writer.add_token_merges(["w 0"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for name, value in made.named_parameters():
        path_, layer, inner = name.removesuffix(".weight"), "", ""
        if path_.startswith("model.layers."):
            _, _, layer, inner = path_.split(".", 3)
        short = f"blk.{layer}.{names[inner]}" if layer else names[path_]
        tensor = value.detach()
        heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}.get(names.get(inner, ""))
        if heads:
            tensor = tensor.view(heads, 2, tensor.shape[0] // heads // 2, -1).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(f"{short}.weight", tensor.numpy().copy())
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_gguf_file(tmp_path: pathlib.Path, as_folder: bool) -> None:
    made = model()
    gguf(tmp_path / "small.gguf", made)
    target = resolve(f"hf:{tmp_path}" if as_folder else f"hf:{tmp_path}/small.gguf")
    assert target.abstract and type(target.model).__name__ == "LlamaForCausalLM"
    loaded = target.loaded()
    assert loaded is not None and loaded.weights == "small.gguf" and loaded.notes[0] == "weights: small.gguf, dequantised to float32"
    same(loaded.model, made)
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, made(ids).logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lacking", ["gguf", "accelerate"])
def test_gguf_without_its_packages(tmp_path: pathlib.Path, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_text("")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == lacking else real(name, *a))
    with pytest.raises(TargetError, match=rf"needs the packages gguf and accelerate, and {lacking} is missing; pip install 'skipway\[gguf\]'"):
        resolve(f"hf:{tmp_path}/a.gguf")


class Spy:
    """Pickled, it leaves a file behind when it is read."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return pathlib.Path.touch, (pathlib.Path(self.place),)


def test_a_pickle_is_never_read(tmp_path: pathlib.Path) -> None:
    made = model()
    made.config.save_pretrained(tmp_path)
    torch.save(Spy(str(tmp_path / "ran")), tmp_path / "pytorch_model.bin")
    target = resolve(f"hf:{tmp_path}")                  # the configuration alone
    assert target.abstract
    with pytest.raises(TargetError, match=r"its weights are pickled \(pytorch_model\.bin\): reading them can run code.*convert it once"):
        target.with_numbers()
    with pytest.raises(TargetError, match=r"pytorch_model\.bin is pickled"):
        resolve(f"hf:{tmp_path}/pytorch_model.bin")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("files", "part"), [
    ({"model.safetensors.index.json": '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'},
     "2 of 2 shards are missing (model-1.safetensors, model-2.safetensors); copy them beside"),
    ({"model.safetensors.index.json": '{"weight_map": {"a": "x.bin"}}', "x.bin": ""}, "names 'x.bin', which is no safetensors file of this folder"),
    ({"model.safetensors.index.json": '{"weight_map": {"a": "../x.safetensors"}}'}, "names '../x.safetensors', which is no safetensors file"),
    ({"model.safetensors.index.json": "[]"}, "model.safetensors.index.json cannot be read (TypeError"),
    ({"a.gguf": "", "b.gguf": ""}, "it holds 2 GGUF files (a.gguf, b.gguf); name one, such as hf:"),
    ({"a.gguf": "no such format"}, "a.gguf has no configuration that transformers reads"),
    ({"model.safetensors": "no such format"}, "model.safetensors cannot be loaded into LlamaForCausalLM"),
])
def test_broken_checkpoints(tmp_path: pathlib.Path, files: dict[str, str], part: str) -> None:
    model().config.save_pretrained(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TargetError) as caught:
        resolve(f"hf:{tmp_path}").with_numbers()
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_random_weights_are_of_full_size_where_that_is_small_and_say_so() -> None:
    small = resolve("hf:llama", config=[f"{k}={v}" for k, v in SIZES.items()])
    full = small.with_numbers()
    assert full.weights == "random" and full.notes == ("a real copy of full size with random weights was run instead",)
    assert len(full.model.model.layers) == 2 and full.model.config.vocab_size == 60
    large = resolve("hf:llama").with_numbers()
    assert large.weights == "random" and large.notes[0].startswith("a small real copy with random weights was run instead (num_hidden_layers 32 to 4")


def test_the_seed_says_which_weights_and_inputs() -> None:
    config = [f"{k}={v}" for k, v in SIZES.items()]
    one, same_, other = (resolve("hf:llama", config=config, seed=seed).with_numbers() for seed in (1, 1, 2))
    same(one.model, same_.model)
    assert not torch.equal(one.model.lm_head.weight, other.model.lm_head.weight)
    assert torch.equal(one.kwargs["input_ids"], same_.kwargs["input_ids"]) and not torch.equal(one.kwargs["input_ids"], other.kwargs["input_ids"])


def test_check_looks_at_the_checkpoints_numbers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from skipway.cli import app
    made = model()
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight[3, 4] = float("nan")
    made.save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["check", f"hf:{tmp_path}", "--stage", "values", "--format", "json"])
    notes = json.loads(done.stdout)["wiring"]["notes"]
    assert "weights: model.safetensors, float32" in notes and not any("random" in note for note in notes)
    found = CliRunner().invoke(app, ["probe", f"hf:{tmp_path}", "--find-nonfinite"])
    assert found.exit_code == 1 and "model.layers.1.mlp.down_proj.weight" in found.stdout
