import torch.nn as nn

def net(:
    return nn.Linear(2, 2)
