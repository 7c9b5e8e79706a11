"""Architectures, one a file, found by file name: their blocks are branches and a residual rule, and nothing else.

    skipway.models.names()                                      every architecture
    skipway.models.sizes("llama")                               its published sizes, and tiny
    skipway.models.build("llama", size="tiny", scheme="hyper")  a model with random weights; scheme=None is the published rule
    skipway.models.load(folder)                                 the weights of a Hugging Face checkpoint folder
    skipway.models.save(model, folder)                          a folder that transformers reads

Training and scoring are the purpose: `model(input_ids=ids).logits`. Generating text with a cache is not.
"""

from skipway.models._base import Config as Config
from skipway.models._base import Model as Model
from skipway.models._base import Output as Output
from skipway.models._build import build as build
from skipway.models._build import names as names
from skipway.models._build import sizes as sizes
from skipway.models._checkpoint import load as load
from skipway.models._checkpoint import save as save
