"""Blocks built of residual rules: `Residual` puts one branch on a stream, `Stack` many; everything else is made of those two."""

from skipway.nn._initial import Exposes as Exposes
from skipway.nn.residual import Residual as Residual
from skipway.nn.stack import Stack as Stack
