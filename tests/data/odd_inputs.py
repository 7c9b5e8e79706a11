"""Models whose inputs cannot be guessed, or whose forward fails."""
import torch
import torch.nn as nn


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, signal, lengths):
        return signal * self.weight


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, a, b):
        return self.line(a) + b


class NeedsArguments(nn.Module):
    def __init__(self, dim, depth, heads=2):
        super().__init__()


class WrongShape(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(9, 4)

    def forward(self, x):
        return x + self.second(self.first(x))


def plain_vgg():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(16, 10))


def empty():
    return nn.Sequential()


def one_layer():
    return nn.Linear(5, 5)
