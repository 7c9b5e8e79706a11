"""What is not understood, or is no longer there, is an error that names the site, and the model stays as it was."""

import copy

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import RewireError, SchemeError, UsageError
from skipway.surgery import Edit

from .conftest import Small, gradients


def test_unknown_names_list_the_nearest(small: Small, ids: Tensor) -> None:
    rewiring = skipway.rewire(small, ids)
    with pytest.raises(RewireError, match="unknown action 'ablat'; did you mean ablate"):
        rewiring.sites().ablat()
    with pytest.raises(RewireError, match=r"sites\(kind='fnn'\): there are self_attention"):
        rewiring.sites(kind="fnn")
    with pytest.raises(RewireError, match=r"sites\(stream='decoder'\): the model has blocks"):
        rewiring.sites(stream="decoder")
    with pytest.raises(RewireError, match="no site of Small meets these conditions; its sites: 6 on 'blocks'; print the rewiring"):
        rewiring.sites(layers=7)
    with pytest.raises(RewireError, match="6 sites were chosen where 4 were wanted"):
        rewiring.sites(count=4)
    with pytest.raises(SchemeError, match="unknown scheme 'rezeero'; did you mean rezero"):
        rewiring.sites().to("rezeero")
    with pytest.raises(RewireError, match="scheme scaled has no option 'alfa'"):
        rewiring.sites().to("scaled", alfa=1)
    with pytest.raises(RewireError, match=r"layer_scale.*unexpected keyword argument 'start'"):
        rewiring.sites().layer_scale(start=1)
    with pytest.raises(RewireError, match=r"drop_path wants 0 <= p < 1, got 1\.5"):
        rewiring.sites().drop_path(1.5)
    with pytest.raises(RewireError, match="layer_scale wants a number for init, got str"):
        rewiring.sites().layer_scale("x")
    with pytest.raises(RewireError, match=r"site 0 of 'blocks'.*and this is its first"):
        rewiring.sites(0).read_from(0)
    with pytest.raises(RewireError, match="lanes changes whole streams, and 3 of the 6 sites"):
        rewiring.sites(kind="ffn").lanes(2)
    assert "forward" not in vars(small)


def test_selections(small: Small, ids: Tensor) -> None:
    rewiring = skipway.rewire(small, ids)
    assert [s.index for s in rewiring.sites(slice(1, None, 2))] == [1, 3, 5]
    assert [s.index for s in rewiring.sites([0, -1])] == [0, 5]
    assert [s.index for s in rewiring.sites(layers=slice(1, 3))] == [2, 3, 4, 5]
    assert [s.index for s in rewiring.sites(module="blocks.[12]")] == [2, 3, 4, 5]
    assert [s.index for s in rewiring.sites(module="blocks.0.mix")] == [0]
    assert [s.index for s in rewiring.sites(where=lambda s: s.layer == 0 and s.branches[0].kind == "ffn")] == [1]
    assert [s.index for s in rewiring.sites(placement="pre", kind="ffn", stream="blocks", layers=[0, 2])] == [1, 5]
    assert str(rewiring.sites(1)).splitlines()[-1] == "1 site"


def test_a_replaced_module_is_told(small: Small, ids: Tensor) -> None:
    plan = skipway.rewire(small, ids).sites(kind="ffn").drop()
    edit = plan.apply()
    kept = small.blocks[1]
    small.blocks[1] = type(kept)(16)
    with pytest.raises(RewireError, match=r"site 3 of 'blocks' in 'blocks.1' did not run: 'blocks.1' is another module"):
        small(ids)
    edit.undo()
    with pytest.raises(RewireError, match=r"site 3 of 'blocks' in 'blocks.1': 'blocks.1' is another module than when the plan was made"):
        plan.apply()
    assert "forward" not in vars(small) and not any("skip_" in n for n, _ in small.named_modules())


def test_a_removed_module_is_told(small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites().plain().apply()
    del small.blocks[2]
    with pytest.raises(RewireError, match=r"site 4 of 'blocks' in 'blocks.2' did not run"):
        small(ids)
    edit.undo()
    small(ids)


class Changing(nn.Module):
    """A block whose code takes another way when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.map = nn.LayerNorm(8), nn.Linear(8, 8)
        self.way = "add"

    def forward(self, x: Tensor) -> Tensor:
        y = self.map(self.norm(x))
        if self.way == "none":
            return y
        if self.way == "twice":
            y = y + y
        if self.way == "slice":
            return torch.cat([x[..., :4] + y[..., :4], x[..., 4:]], -1)
        return x + y


@pytest.mark.parametrize(("way", "ran"), [("none", 0), ("twice", 2), ("slice", 0)])
def test_control_flow_that_changes_is_told(way: str, ran: int) -> None:
    model = nn.ModuleDict({"a": Changing(), "b": Changing()})

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            return self.parts["b"](self.parts["a"](x))
    whole, x = Whole(), torch.randn(2, 3, 8)
    edit = skipway.rewire(whole, x).sites().scale(branch=0.5).apply()
    whole(x)
    model["b"].way = way
    with pytest.raises(RewireError, match=rf"site 1 of .* was planned as add 1 of 1 of its shape in a call of 'parts.b', and {ran} ran"):
        whole(x)
    edit.undo()
    whole(x)


def test_another_shape_is_told(small: Small, ids: Tensor) -> None:
    skipway.rewire(small, ids).sites().drop().apply()
    small(ids[:1, :3])                                      # batch and length may be others
    with pytest.raises(RewireError, match=r"site 0 of 'blocks' in 'blocks.0' was planned as add 1 of 2 .* and 0 ran"):
        small(ids[0])                                       # another rank


def test_a_module_that_runs_another_number_of_times_is_told(small: Small, ids: Tensor) -> None:
    skipway.rewire(small, ids).sites().plain().apply()
    small.blocks.append(small.blocks[0])
    with pytest.raises(RewireError, match=r"site 0 of 'blocks' in 'blocks.0' ran 2 times in this forward where 1 were planned"):
        small(ids)


def test_what_cannot_be_reached_is_told_when_it_is_acted_on() -> None:
    class Lerp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.map = nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.addcmul(x, self.map(self.norm(x)), torch.full((8,), 0.5))
    rewiring = skipway.rewire(Lerp(), torch.randn(2, 8))
    with pytest.raises(RewireError, match=r"site 0 .*test_wrong_plans.py:\d+\) is performed by addcmul, and no add of torch is seen there"):
        rewiring.sites().drop()


def test_a_rewired_model_is_not_rewired_again(small: Small, ids: Tensor) -> None:
    skipway.rewire(small, ids).sites(0).drop().apply()
    with pytest.raises(UsageError, match="has been rewired; undo that edit first"):
        skipway.rewire(small, ids)


def test_undo_waits_for_what_was_put_over_it(small: Small, ids: Tensor) -> None:
    want = gradients(small, ids)[0]
    edit = skipway.rewire(small, ids).sites(0).drop().apply()
    ours = small.blocks[0].forward
    small.blocks[0].forward = lambda x: ours(x)             # type: ignore[method-assign]
    with pytest.raises(RewireError, match=r"the forward of 'blocks.0' was wrapped by something else after the edit"):
        edit.undo()
    small.blocks[0].forward = ours                          # type: ignore[method-assign]
    edit.undo()
    assert torch.equal(small(ids), want) and "forward" not in vars(small.blocks[0])


def test_what_was_put_under_it_stays(small: Small, ids: Tensor) -> None:
    calls = []
    inner = small.blocks[0].forward

    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return inner(x)
    small.blocks[0].forward = counted                       # type: ignore[method-assign]
    edit = skipway.rewire(small, ids).sites(0).drop().apply()
    calls.clear()
    small(ids)
    assert len(calls) == 1
    edit.undo()
    assert small.blocks[0].forward is counted


def test_the_copy_carries_its_own_edit(small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites().layer_scale(0.5).apply()
    twin = copy.deepcopy(small)
    want = small(ids)
    next(edit.parameters()).data.zero_()
    assert torch.equal(twin(ids), want)
    other = Edit.of(twin)
    assert other is not None and other.model is twin
    other.undo()
    edit.undo()
    assert torch.equal(twin(ids), small(ids)) and not torch.equal(twin(ids), want)


def test_nothing_is_left_of_an_edit_that_failed(small: Small, ids: Tensor) -> None:
    plan = skipway.rewire(small, ids).sites().layer_scale(0.5)
    small.blocks[2].skip_5 = nn.Identity()
    with pytest.raises(RewireError, match=r"site 5 of 'blocks' in 'blocks.2': 'blocks.2' has an attribute 'skip_5' already"):
        plan.apply()
    assert [n for n, _ in small.named_modules() if "skip_" in n] == ["blocks.2.skip_5"]
    assert all("forward" not in vars(m) for m in small.modules())
