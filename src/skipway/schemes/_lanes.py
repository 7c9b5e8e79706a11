"""What schemes of several lanes share: how lanes are born and how they are left. Lanes are (n, ..., dim)."""

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme


def born(x: Tensor, lanes: int, shared: bool = False) -> Tensor:
    """n equal lanes, in memory as the operations leave them: token by token, or lane by lane where all tokens share their coefficients."""
    if shared:
        return x.expand(lanes, *x.shape).contiguous()
    return x.unsqueeze(-2).expand(*x.shape[:-1], lanes, -1).contiguous().movedim(-2, 0)


def several(scheme: Scheme, lanes: int) -> int:
    """The number of lanes. Raises SchemeError where it is not at least 2."""
    if lanes < 2:
        raise SchemeError(f"scheme {scheme.name()}: lanes is {lanes}; wanted 2 or more, for one lane use pre_norm")
    return lanes


def one_of(scheme: Scheme, option: str, value: str, *known: str) -> str:
    """The value of an option. Raises SchemeError where it is none of those that are known."""
    if value not in known:
        raise SchemeError(f"scheme {scheme.name()}: {option} is {value!r}; wanted one of {', '.join(known)}")
    return value
