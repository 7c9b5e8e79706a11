import torch.nn as nn

raise RuntimeError("broken on\npurpose")
