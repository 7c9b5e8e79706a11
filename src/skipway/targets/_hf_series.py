"""Inputs of time series and of trajectories."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipway.targets._hf_context import BATCH, TOKENS, Context

Maker = Callable[[str, Context], Sequence[Any]]


def _past(c: Context) -> int:
    lags = c.first("lags_sequence")
    return c.number(TOKENS, "context_length") + (max(lags) if isinstance(lags, (list, tuple)) and lags else 0)


def values(name: str, c: Context) -> list[Any]:
    """Observed values (batch, time), or (batch, time, variable)."""
    length = c.number(TOKENS, "prediction_length") if name.startswith("future") else _past(c)
    count = c.number(1, "num_input_channels", "input_size")
    flat, wide = c.normal(BATCH, length), c.normal(BATCH, length, count)
    return [wide, flat] if count > 1 or c.first("num_input_channels") else [flat, wide]


def times(name: str, c: Context) -> list[torch.Tensor]:
    """Features of time (batch, time, feature)."""
    length = c.number(TOKENS, "prediction_length") if name.startswith("future") else _past(c)
    return [c.normal(BATCH, length, c.number(0, "num_time_features"))]


def observed(name: str, c: Context) -> list[torch.Tensor]:
    """Ones like the past values; for padding, zeros."""
    past = c.values.get("past_values")
    shape = (BATCH, _past(c)) if past is None else tuple(past.shape)
    return [torch.zeros(shape, dtype=torch.long), torch.zeros(shape)] if "padding" in name else [torch.ones(shape), torch.ones(shape).bool()]


def frequency(name: str, c: Context) -> list[torch.Tensor]:
    """The class of the sampling frequency of each series."""
    return [torch.zeros(BATCH, 1, dtype=torch.long), torch.zeros(BATCH, dtype=torch.long)]


def trajectory(name: str, c: Context) -> list[torch.Tensor]:
    """States, actions and rewards (batch, step, size)."""
    fields = {"states": ("state_dim",), "actions": ("act_dim", "action_dim"), "state": ("max_state_dim", "state_dim"),
              "action_embeds": ("hidden_size",)}.get(name)
    width = c.number(1, *fields) if fields else 1
    return [c.normal(BATCH, TOKENS, width), c.normal(BATCH, width)]


def steps(name: str, c: Context) -> list[torch.Tensor]:
    """The number of each step (batch, step)."""
    return [torch.arange(TOKENS).repeat(BATCH, 1)]


MAKERS: dict[str, Maker] = {
    r"past_values|future_values": values,
    r"\w+_time_features": times,
    r"past_observed_mask|observed_mask|past_values_padding": observed,
    r"freq": frequency,
    r"states?|actions|rewards|returns_to_go": trajectory,
    r"timesteps": steps,
}
