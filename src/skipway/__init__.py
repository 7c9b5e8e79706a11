"""skipway: the toolkit for residual (skip) connections in PyTorch."""

from skipway.wiring import trace as trace
