"""One branch on a stream of its own."""

from typing import Any

from torch import Tensor

from skipway.nn._join import Join


class Residual(Join):
    """A branch F and the rule by which its result joins the stream: leave(write(s, F(read(s)))) with s = enter(x).

    branch          any module; it gets what the scheme reads and the arguments of the call, and returns y or a tuple (y, ...)
    dim             width of x, (..., dim)
    scheme          name of a scheme, or a scheme that is built
    dropout         probability of dropping single elements of y
    drop_path       probability of dropping the branch of a sample (stochastic depth); see `DropPath`
    stream_dtype    dtype of the stream and of the scheme's own weights; None keeps that of x. The branch runs in the dtype of x.
    depth, index, role, per_block, norm, options    as in `skipway.schemes.Scheme`
    init            whether the branch's weights are brought to the start that the scheme asks for

    `nn.Residual(branch, dim)` is x + F(N(x)); `nn.Residual(branch, dim, "post_norm")` is N(x + F(x)).
    Raises SchemeError when built (unknown scheme or option, missing depth) and ShapeMismatch at a call whose branch gives None or another shape.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """x with the branch joined, and what else the branch returned."""
        stream, extras = self.step(self.enter(x), x.dtype, args, kwargs)
        y = self.scheme.leave(stream).to(x.dtype)
        return (y, *extras) if extras else y
