"""Blocks built of residual rules: `Residual` puts one branch on a stream, `Stack` many; everything else is made of those two."""

from skipway.nn._initial import Exposes as Exposes
from skipway.nn._inner import TakesInnerNorm as TakesInnerNorm
from skipway.nn._unit import normalise_weights as normalise_weights
from skipway.nn.attention import Attention as Attention
from skipway.nn.blocks import Decoder as Decoder
from skipway.nn.blocks import DecoderBlock as DecoderBlock
from skipway.nn.blocks import Encoder as Encoder
from skipway.nn.blocks import EncoderBlock as EncoderBlock
from skipway.nn.compressed_attention import CompressedAttention as CompressedAttention
from skipway.nn.drop_path import DropPath as DropPath
from skipway.nn.feed_forward import FeedForward as FeedForward
from skipway.nn.latent_attention import LatentAttention as LatentAttention
from skipway.nn.moe import MoE as MoE
from skipway.nn.moe import load_balance_loss as load_balance_loss
from skipway.nn.parallel import Parallel as Parallel
from skipway.nn.relative import RelativeBias as RelativeBias
from skipway.nn.residual import Residual as Residual
from skipway.nn.resnet import ResNet as ResNet
from skipway.nn.rotary import Rotary as Rotary
from skipway.nn.stack import Stack as Stack
from skipway.nn.sublayer import Sublayer as Sublayer
from skipway.nn.vision import VisionTransformer as VisionTransformer
