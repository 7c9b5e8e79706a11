"""Data for a probe: texts, named arrays, images, functions; and what does not fit."""

import pathlib
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from skipway._errors import TargetError
from skipway.targets import Target
from skipway.targets._data import Wanted, load, vocabulary


class Words(nn.Module):
    def __init__(self, size: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, 8)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.embed(input_ids)


class Pictures(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


WORDS = Target(Words(), (), {"input_ids": torch.zeros(1, 2, dtype=torch.long)}, "net.py:words")
PICTURES = Target(Pictures(), (torch.zeros(2, 3, 8, 12),), {}, "net.py:pictures")


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tokenizer(folder: pathlib.Path, around: bool = False, size: int = 40) -> str:
    """A tokenizer.json of single words: "w0" is 0 and so on; with `around`, 38 stands before and 39 after a text. It cuts and pads, as many do."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(size - 3)} | {"[MASK]": size - 3, "[CLS]": size - 2, "[SEP]": size - 1}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["[MASK]", "[CLS]", "[SEP]"])
    if around:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", size - 2), ("[SEP]", size - 1)])
    made.enable_truncation(5)
    made.enable_padding(length=7)
    (folder / "tokenizer.json").write_text(made.to_str())
    return str(folder)


def text(folder: pathlib.Path, count: int) -> str:
    (folder / "a.txt").write_text(" ".join(f"w{i % 37}" for i in range(count)))
    return "a.txt"


def test_a_text_is_cut_into_consecutive_rows(here: pathlib.Path) -> None:
    data = load(text(here, 30), WORDS, Wanted(3, 8, tokenizer(here)))
    assert torch.equal(data.given.kwargs["input_ids"], torch.arange(24).view(3, 8))
    assert data.said == "text a.txt, 3 x 8 tokens" and data.mask == 37 and data.special == {37, 38, 39}


def test_special_tokens_stand_around_each_row(here: pathlib.Path) -> None:
    data = load(text(here, 30), WORDS, Wanted(2, 6, tokenizer(here, around=True)))
    assert data.given.kwargs["input_ids"].tolist() == [[38, 0, 1, 2, 3, 39], [38, 4, 5, 6, 7, 39]]


@pytest.mark.parametrize(("count", "rows", "said"), [
    (20, [[*range(8)], [*range(8, 16)]], "2 x 8 tokens, all that the text has"), (5, [[0, 1, 2, 3, 4]], "1 x 5 tokens, all that the text has")])
def test_a_short_text_gives_fewer_rows_and_says_so(here: pathlib.Path, count: int, rows: list[list[int]], said: str) -> None:
    data = load(text(here, count), WORDS, Wanted(4, 8, tokenizer(here)))
    assert data.given.kwargs["input_ids"].tolist() == rows and data.said == f"text a.txt, {said}"


def test_a_long_text_whose_tokens_are_far_apart_is_read_on(here: pathlib.Path) -> None:
    (here / "a.txt").write_text((" " * 300).join(f"w{i}" for i in range(20)))
    assert load("a.txt", WORDS, Wanted(2, 8, tokenizer(here))).given.kwargs["input_ids"].tolist() == [[*range(8)], [*range(8, 16)]]


def test_an_encoder_decoder_gets_half_a_row_on_each_side(here: pathlib.Path) -> None:
    class Both(Words):
        def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:   # type: ignore[override]
            return self.embed(input_ids)
    target = Target(Both(), (), {"input_ids": torch.zeros(1, 2).long(), "decoder_input_ids": torch.zeros(1, 2).long()}, "net")
    given = load(text(here, 30), target, Wanted(1, 8, tokenizer(here))).given.kwargs
    assert given["input_ids"].tolist() == [[0, 1, 2, 3]] and given["decoder_input_ids"].tolist() == [[4, 5, 6, 7]]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_named_arrays(here: pathlib.Path, ending: str) -> None:
    ids, labels = torch.arange(6).view(2, 3), torch.tensor([1, 0])
    if ending == "npz":
        numpy.savez(here / "a.npz", input_ids=ids.numpy(), labels=labels.numpy())
    else:
        pytest.importorskip("safetensors.torch").save_file({"input_ids": ids, "labels": labels}, here / "a.safetensors")
    data = load(f"a.{ending}", WORDS, Wanted())
    assert list(data.given.kwargs) == ["input_ids"] and torch.equal(data.given.kwargs["input_ids"], ids)
    assert data.labels is not None and torch.equal(torch.as_tensor(data.labels), labels) and data.said == f"a.{ending}"


def test_a_function(here: pathlib.Path) -> None:
    (here / "rows.py").write_text("import torch\ndef rows():\n    return {'input_ids': torch.ones(2, 3).long(), 'labels': torch.zeros(2).long()}\n")
    data = load("rows.py:rows", WORDS, Wanted())
    assert data.given.kwargs["input_ids"].tolist() == [[1] * 3] * 2 and data.labels is not None and data.said == "from rows.py:rows"


def picture(path: pathlib.Path, red: int) -> None:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(exist_ok=True)
    image.new("RGB", (20, 10), (red, 0, 255)).save(path)


def test_images_are_resized_and_normalised(here: pathlib.Path) -> None:
    for name, red in (("b", 255), ("a", 51)):
        picture(here / "pictures" / f"{name}.png", red)
    data = load("pictures", PICTURES, Wanted(batch=4))
    rows = data.given.args[0]
    assert rows.shape == (2, 3, 8, 12) and data.labels is None and data.said == "2 images of pictures, 8 x 12"
    wanted = [[(0.2 - 0.485) / 0.229, -0.456 / 0.224, (1 - 0.406) / 0.225], [(1 - 0.485) / 0.229, -0.456 / 0.224, (1 - 0.406) / 0.225]]
    assert torch.allclose(rows.mean((2, 3)), torch.tensor(wanted), atol=1e-5)
    assert data.notes[0] == "images: resized to 8 x 12 and normalised as ImageNet's are; the model does not say how it wants them"


def test_sub_folders_are_classes_that_take_turns(here: pathlib.Path) -> None:
    for name, red in (("dog/1.png", 10), ("dog/2.png", 20), ("cat/1.png", 30), ("cat/2.png", 40)):
        picture(here / "pictures" / "x.png", 0)
        picture(here / "pictures" / name, red)
    (here / "pictures" / "x.png").unlink()
    data = load("pictures", PICTURES, Wanted(batch=3))
    assert data.labels is not None and data.labels.tolist() == [0, 1, 0] and "labels: cat is 0, dog is 1" in data.notes
    reds = (data.given.args[0][:, 0].mean((1, 2)) * 0.229 + 0.485) * 255
    assert reds.round().tolist() == [30, 10, 40]


def test_timm_models_say_how_they_want_images(here: pathlib.Path) -> None:
    timm = pytest.importorskip("timm")
    picture(here / "pictures" / "a.png", 255)
    model = timm.create_model("test_vit.r160_in1k", pretrained=False)
    data = load("pictures", Target(model, (torch.zeros(1, 3, 160, 160),), {}, "timm:test_vit.r160_in1k"), Wanted())
    mean, std = model.default_cfg["mean"], model.default_cfg["std"]
    wanted = [(1 - mean[0]) / std[0], -mean[1] / std[1], (1 - mean[2]) / std[2]]
    assert data.given.args[0].shape == (1, 3, 160, 160) and not data.notes
    assert torch.allclose(data.given.args[0].mean((0, 2, 3)), torch.tensor(wanted), atol=1e-5)


def test_torchvision_models_say_how_they_want_images(here: pathlib.Path) -> None:
    models = pytest.importorskip("torchvision.models")
    picture(here / "pictures" / "a.png", 255)
    data = load("pictures", Target(models.resnet18(), (torch.zeros(1, 3, 224, 224),), {}, "torchvision:resnet18"), Wanted())
    assert data.given.args[0].shape == (1, 3, 224, 224) and not data.notes
    assert data.given.args[0].mean((0, 2, 3)).tolist() == pytest.approx([(1 - 0.485) / 0.229, -0.456 / 0.224, (1 - 0.406) / 0.225], abs=1e-4)


def test_a_preprocessor_config_says_how_images_are_wanted(here: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    (here / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "do_resize": true, "size": {"height": 6, "width": 6}, "do_rescale": true, '
        '"rescale_factor": 0.00392156862745098, "do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25], "resample": 2}')
    picture(here / "pictures" / "a.png", 255)
    target = Target(Pictures(), (torch.zeros(1, 3, 6, 6),), {}, "hf:x", folder=str(here))
    rows = load("pictures", target, Wanted()).given.args[0]
    assert rows.shape == (1, 3, 6, 6) and rows.mean((0, 2, 3)).tolist() == pytest.approx([2, -2, 2], abs=1e-4)


def test_the_vocabulary() -> None:
    assert vocabulary(Words(9)) == 9 and vocabulary(Pictures()) is None


@pytest.mark.parametrize(("name", "part"), [
    ("none.txt", "--data none.txt: no such file; give a text file"),
    ("a.pt", ".pt files may hold code or arrays without names; save the inputs by name"),
    ("a.npy", ".npy files may hold code or arrays without names"),
    ("odd.npz", "Words.forward takes no 'ids'; it takes input_ids, attention_mask"),
    ("lacking.npz", "Words.forward needs 'input_ids', got attention_mask; add it by that name"),
    ("high.npz", "'input_ids' holds 50, and the model's vocabulary has 50 tokens, 0 to 49"),
    ("low.npz", "'input_ids' holds -1, and the model's vocabulary has 50 tokens"),
    ("labels.npz", "it holds labels and no input"),
    ("objects.npz", "cannot be read: Object arrays cannot be loaded"),
    ("broken.npz", "cannot be read"),
    ("broken.safetensors", "not a safetensors file"),
    ("latin.txt", "not a text in UTF-8 (invalid continuation byte at byte 1)"),
    ("plain.txt", "a text needs a tokenizer, and net.py:words comes without one; give --tokenizer FOLDER"),
    ("empty", "it holds no image (.png, .jpg, .jpeg, .webp, ...), nor do its sub-folders"),
    ("spoiled", "a.png cannot be read"),
    ("empty.txt", "the text has 0 tokens, want at least 2"),
])
def test_what_does_not_fit(here: pathlib.Path, name: str, part: str) -> None:
    for made, values in {"odd": {"ids": [[1]]}, "lacking": {"attention_mask": [[1]]}, "high": {"input_ids": [[1, 50]]}, "low": {"input_ids": [[-1]]},
                         "labels": {"labels": [1]}}.items():
        numpy.savez(here / f"{made}.npz", **{k: numpy.array(v) for k, v in values.items()})
    numpy.savez(here / "objects.npz", input_ids=numpy.array([{}], dtype=object), allow_pickle=True)
    for made in ("a.pt", "a.npy", "broken.npz", "broken.safetensors", "plain.txt"):
        (here / made).write_text("w1 w2")
    (here / "empty.txt").write_text("")
    (here / "latin.txt").write_bytes("aéa".encode("latin-1"))
    (here / "empty").mkdir()
    (here / "spoiled").mkdir()
    (here / "spoiled" / "a.png").write_text("no image")
    wanted = Wanted(2, 4, None if name == "plain.txt" else tokenizer(here))
    with pytest.raises(TargetError) as caught:
        load(name, PICTURES if name == "spoiled" else WORDS, wanted)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("wanted", "part"), [
    (Wanted(0, 8), "--batch: got 0, want at least 1"), (Wanted(1, 0), "--tokens: got 0, want at least 1"),
    (Wanted(1, 2), "--tokens 2: the tokenizer adds 2 special ones to each row; ask for more"),
    (Wanted(1, 9), "--tokens 9: Words takes at most 8 positions")])
def test_how_much_is_wanted(here: pathlib.Path, wanted: Wanted, part: str) -> None:
    class Config:
        max_position_embeddings = 8
    model: Any = Words()
    model.config = Config()
    with pytest.raises(TargetError, match=part):
        load(text(here, 30), Target(model, (), {}, "net"), Wanted(wanted.batch, wanted.tokens, tokenizer(here, around=True)))
