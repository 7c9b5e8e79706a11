import torch
import torch.nn as nn


class Only(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.line(x)

    def other(self, x):
        return x - self.line(x)


def example_inputs():
    return torch.zeros(4, 3, 6)
