"""What schemes do to the norms they own."""

from torch import nn

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme


def filled(scheme: Scheme, norm: nn.Module, gain: float) -> nn.Module:
    """The norm with its gain at a value; one that multiplies by 1 + weight has an attribute `offset`, 1.

    Raises SchemeError where the value is not 1 and the norm has no gain.
    """
    weight = getattr(norm, "weight", None)
    if isinstance(weight, nn.Parameter):
        nn.init.constant_(weight, gain - getattr(norm, "offset", 0.0))
    elif gain != 1.0:
        raise SchemeError(f"scheme {scheme.name()}: start={gain} is for the gain of its norm, and {type(norm).__name__} has none; "
                          "give a norm with a weight")
    return norm
