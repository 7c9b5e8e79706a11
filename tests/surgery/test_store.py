"""An edit on disk, and copies of a rewired model."""

import json
import pathlib
import pickle
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import skipway
from skipway._errors import RewireError, UsageError
from skipway.surgery import Edit

from .conftest import Small, assert_same, gradients


def rewired(model: Small, ids: Tensor) -> Edit:
    torch.manual_seed(3)
    plan = skipway.rewire(model, ids).sites(kind="ffn").to("rezero").sites(0).gate().sites(2).to("highway", bias=-1.0)
    edit = plan.branch("blocks.0.mix").insert_skip().apply()
    for p in edit.parameters():
        p.data.normal_()
    return edit


def fresh() -> Small:
    torch.manual_seed(0)
    return Small()


def test_save_and_reapply(small: Small, ids: Tensor, tmp_path: pathlib.Path) -> None:
    edit = rewired(small, ids)
    want = gradients(small, ids)
    edit.save(tmp_path / "edit.safetensors")
    other = fresh()
    again = skipway.reapply(other, tmp_path / "edit.safetensors")
    assert_same(gradients(other, ids), want)
    assert list(other.state_dict()) == list(small.state_dict())
    assert str(again) == str(edit)
    again.undo()
    assert list(other.state_dict()) == list(fresh().state_dict())
    assert [p.name for p in tmp_path.iterdir()] == ["edit.safetensors"]


def test_the_names_in_the_file_are_those_in_the_model(small: Small, ids: Tensor, tmp_path: pathlib.Path) -> None:
    edit = rewired(small, ids)
    edit.save(tmp_path / "e.safetensors")
    tensors = load_file(tmp_path / "e.safetensors")
    own = small.state_dict()
    assert set(tensors) == {n for n in own if "skip_" in n} and len(tensors) > 4
    assert all(torch.equal(tensors[n], own[n]) for n in tensors)


def test_pickle_carries_the_edit(small: Small, ids: Tensor) -> None:
    edit = rewired(small, ids)
    want = gradients(small, ids)
    twin = pickle.loads(pickle.dumps(small))
    assert_same(gradients(twin, ids), want)
    edit.undo()
    other = Edit.of(twin)
    assert other is not None
    other.undo()
    assert_same(gradients(twin, ids), gradients(small, ids))


def damaged(path: pathlib.Path, how: str) -> None:
    tensors = load_file(path)
    with safe_open(str(path), "pt") as file:
        data: dict[str, Any] = json.loads(file.metadata()["skipway"])
    first = sorted(tensors)[0]
    if how == "missing":
        del tensors[first]
    elif how == "extra":
        tensors["more"] = torch.zeros(1)
    elif how == "shape":
        tensors[first] = torch.zeros(7, 7)
    elif how == "schema":
        data["schema"] = "skipway.edit/9"
    elif how == "module":
        data["plan"][0]["spot"]["module"] = "blocks.9"
    save_file(tensors, str(path), {"skipway": json.dumps(data)})
    if how == "garbage":
        path.write_bytes(b"no safetensors")


@pytest.mark.parametrize(("how", "says"), [
    ("missing", "missing blocks.0.skip_0"), ("extra", "left over more"), ("shape", r"has shape \(7, 7\), the model wants"),
    ("schema", r"holds no edit of schema 'skipway.edit/1' \(found 'skipway.edit/9'\)"), ("module", "Small has no module 'blocks.9'"),
    ("garbage", "cannot be read as a safetensors file")])
def test_a_file_that_does_not_fit_changes_nothing(how: str, says: str, small: Small, ids: Tensor, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "e.safetensors"
    rewired(small, ids).save(path)
    damaged(path, how)
    other = fresh()
    with pytest.raises(RewireError, match=says):
        skipway.reapply(other, path)
    assert_same(gradients(other, ids), gradients(fresh(), ids))
    assert all("forward" not in vars(m) for m in other.modules()) and list(other.state_dict()) == list(fresh().state_dict())


def test_what_cannot_be_saved_is_told(small: Small, ids: Tensor, tmp_path: pathlib.Path) -> None:
    edit = skipway.rewire(small, ids).sites(1).observe(print).apply()
    with pytest.raises(RewireError, match=r"site 1 of 'blocks'.*has observe, which holds a function and cannot be written"):
        edit.save(tmp_path / "e.safetensors")
    edit.undo()
    with pytest.raises(RewireError, match="this edit was undone, so there is nothing to save"):
        edit.save(tmp_path / "e.safetensors")
    edit = skipway.rewire(small, ids).sites(1).drop().apply()
    with pytest.raises(RewireError, match="is no folder"):
        edit.save(tmp_path / "none" / "e.safetensors")
    with pytest.raises(UsageError, match="Small has been rewired"):
        skipway.reapply(small, tmp_path / "e.safetensors")
    assert list(tmp_path.iterdir()) == []
