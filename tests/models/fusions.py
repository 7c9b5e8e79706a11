"""Look-alikes in which several resolutions, stages or networks meet: pyramids, fusions, necks, and blocks with a skip by choice."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import conv_bn
from .parts import DIM, Attention, Block, FeedForward, LookAlike, image, tokens


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv_bn(width, width), conv_bn(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


def fused_resolutions() -> LookAlike:
    """Two resolutions run side by side and each takes the other in after every stage (HRNet)."""

    class Stage(nn.Module):
        def __init__(self, fine: int, coarse: int) -> None:
            super().__init__()
            self.fine, self.coarse = nn.Sequential(_Residual(fine), _Residual(fine)), nn.Sequential(_Residual(coarse), _Residual(coarse))
            self.up, self.down = conv_bn(coarse, fine, 1), conv_bn(fine, coarse, 3, 2)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            x, y = self.fine(x), self.coarse(y)
            return F.relu(x + F.interpolate(self.up(y), scale_factor=2)), F.relu(self.down(x) + y)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.turn = conv_bn(3, 8, 3, 2), conv_bn(8, 12, 3, 2)
            self.stages, self.head = nn.ModuleList([Stage(8, 12), Stage(8, 12)]), nn.Conv2d(20, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            y = F.relu(self.turn(x))
            for stage in self.stages:
                x, y = stage(x, y)
            return self.head(torch.cat([x, F.interpolate(y, scale_factor=2)], 1))

    return LookAlike(Net(), (image(),))


def pyramid_over_residual_stages() -> LookAlike:
    """Top-down sums of laterals over stages that are joined by projections, so that all levels carry one stream (Faster R-CNN's FPN)."""

    class Down(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.conv1, self.conv2, self.skip = conv_bn(a, b, 3, 2), conv_bn(b, b), conv_bn(a, b, 1, 2)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.skip(x) + self.conv2(F.relu(self.conv1(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = conv_bn(3, 8)
            self.stages = nn.ModuleList([nn.Sequential(Down(8, 12), _Residual(12)), nn.Sequential(Down(12, 16), _Residual(16)),
                                         nn.Sequential(Down(16, 20), _Residual(20))])
            self.lateral = nn.ModuleList([nn.Conv2d(width, 8, 1) for width in (12, 16, 20)])
            self.smooth = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])

        def forward(self, x: Tensor) -> list[Tensor]:
            x, levels = self.stem(x), []
            for stage in self.stages:
                x = stage(x)
                levels.append(x)
            top = self.lateral[2](levels[2])
            found = [self.smooth[2](top)]
            for k in (1, 0):
                top = self.lateral[k](levels[k]) + F.interpolate(top, scale_factor=2)
                found.append(self.smooth[k](top))
            return found

    return LookAlike(Net(), (image(),))


def a_skip_by_choice() -> LookAlike:
    """Blocks of one class, of which the last alone is built with a skip (PP-LCNetV2)."""

    class Separable(nn.Module):
        def __init__(self, a: int, b: int, stride: int = 1, use_shortcut: bool = False) -> None:
            super().__init__()
            self.deep, self.point = conv_bn(a, a, 5, stride, a), conv_bn(a, b, 1)
            self.use_shortcut = use_shortcut and stride == 1 and a == b

        def forward(self, x: Tensor) -> Tensor:
            shortcut = x
            x = self.point(F.relu(self.deep(x)))
            if self.use_shortcut:
                x = x + shortcut
            return x

    stages = nn.Sequential(Separable(8, 12, 2), Separable(12, 12), Separable(12, 16, 2), Separable(16, 16, use_shortcut=True))
    return LookAlike(nn.Sequential(conv_bn(3, 8), stages, nn.Conv2d(16, 3, 1)), (image(),), ["conv output"])


def other_shape_of_one_size() -> LookAlike:
    """A strip of a picture is halved in height alone while its channels double, so its size stays what it was (PP-LCNetV4)."""

    class Mixer(nn.Module):
        def __init__(self, a: int, b: int, stride: tuple[int, int] = (1, 1)) -> None:
            super().__init__()
            self.deep = nn.Conv2d(a, a, 3, stride, 1, groups=a)
            self.up, self.down, self.same = conv_bn(a, 2 * a, 1), conv_bn(2 * a, b, 1), a == b

        def forward(self, x: Tensor) -> Tensor:
            x = self.deep(x)
            y = self.down(F.gelu(self.up(x)))
            return x + y if self.same else y

    class Stage(nn.Module):
        def __init__(self, *blocks: nn.Module) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(blocks)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    stages = nn.Sequential(Stage(Mixer(8, 8)), Stage(Mixer(8, 16, (2, 1)), Mixer(16, 16)))
    return LookAlike(nn.Sequential(conv_bn(3, 8), stages, nn.Conv2d(16, 3, 1)), (image(size=12),), ["ffn output"] * 2)


def neck_behind_a_plain_transformer() -> LookAlike:
    """A deep pre-norm stack without a final norm, whose last state goes into a convolutional neck (SAM, ViTDet)."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.blocks = nn.Conv2d(3, DIM, 4, 4), nn.Sequential(*[Block() for _ in range(8)])
            self.neck = nn.Sequential(nn.ConvTranspose2d(DIM, 8, 2, 2), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1))
            self.prompts = nn.Sequential(nn.Conv2d(1, 8, 1), nn.LayerNorm(8))          # never called with an image alone

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch(x)
            y = self.blocks(x.flatten(2).transpose(1, 2))
            return self.neck(y.transpose(1, 2).unflatten(2, x.shape[2:]))

    return LookAlike(Net(), (image(),), ["self_attention pre", "ffn pre"] * 8)


def norms_between_stacks() -> LookAlike:
    """Two pre-norm stacks with a norm between them, a short third one, and a pooling head that reads its raw state (VideoPrism)."""

    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.attn = nn.Parameter(torch.zeros(1, 1, DIM)), Attention()

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(self.query.expand(x.size(0), -1, -1), x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.space, self.time = nn.Linear(DIM, DIM), nn.ModuleList([Block() for _ in range(7)]), nn.ModuleList([Block()])
            self.norm1, self.last, self.pool, self.norm2 = nn.LayerNorm(DIM), nn.ModuleList([Block()]), Pool(), nn.LayerNorm(DIM)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for block in (*self.space, *self.time):
                x = block(x)
            x = self.norm1(x)
            for block in self.last:
                x = block(x)
            return self.norm2(self.pool(x))

    return LookAlike(Net(), (tokens(),), ["self_attention pre", "ffn pre"] * 9)


def predicted_kernels() -> LookAlike:
    """Kernels and biases of the layers are entries of a table that a second network makes (location-variable convolution, UnivNet)."""

    class Net(nn.Module):
        def __init__(self, layers: int = 3) -> None:
            super().__init__()
            self.layers, self.enter, self.stem = layers, nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
            self.kernels, self.biases = nn.Linear(DIM, layers * DIM * DIM), nn.Linear(DIM, layers * DIM)
            self.conv = nn.ModuleList([nn.Conv1d(DIM, DIM, 3, padding=1) for _ in range(layers)])
            self.head = nn.Linear(DIM, 4)

        def forward(self, x: Tensor, guide: Tensor) -> Tensor:
            guide = F.gelu(self.enter(guide.mean(1)))
            kernels, biases = self.kernels(guide).unflatten(-1, (self.layers, DIM, DIM)), self.biases(guide).unflatten(-1, (self.layers, 1, DIM))
            x = self.stem(x)
            for k, conv in enumerate(self.conv):
                y = F.leaky_relu(conv(x.transpose(1, 2)).transpose(1, 2))
                x = x + torch.tanh(y @ kernels[:, k] + biases[:, k])
            return self.head(x)

    return LookAlike(Net(), (tokens(), tokens(length=4)), ["conv none"] * 3)


def one_skip_around_a_short_encoder() -> LookAlike:
    """An encoder of one layer, and one add around the whole of it (X-CLIP's multi-frame integration)."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.place = nn.Linear(DIM, DIM), nn.Parameter(torch.zeros(1, 6, DIM))
            self.layers, self.norm, self.head = nn.ModuleList([Block()]), nn.LayerNorm(DIM), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            first = self.stem(x)
            x = first + self.place
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x + first))

    return LookAlike(Net(), (tokens(),), ["self_attention pre", "ffn pre"])


def lone_recurrence_before_the_stack() -> LookAlike:
    """One bidirectional recurrence of equal width stands before the residual ones, all written in one forward (GNMT)."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.head = nn.LSTM(DIM, DIM // 2, batch_first=True, bidirectional=True), nn.Linear(DIM, 4)
            self.stack = nn.ModuleList([nn.LSTM(DIM, DIM, batch_first=True) for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            x = self.both(x)[0]
            for one in self.stack:
                x = x + one(x)[0]
            return self.head(x)

    return LookAlike(Net(), (tokens(),), ["ssm none"] * 3)


def messages_on_a_graph() -> LookAlike:
    """Edges and nodes each carry a stream; the head reads the nodes, so the last edge states are left over."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge, self.node = FeedForward(), FeedForward()

        def forward(self, node: Tensor, edge: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            message = self.edge(edge + node[source])
            edge = edge + message
            return node + self.node(torch.zeros_like(node).index_add(0, target, message)), edge

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.edges, self.head = nn.Linear(DIM, DIM), nn.Linear(3, DIM), nn.Linear(DIM, 4)
            self.layers = nn.ModuleList([Layer() for _ in range(3)])

        def forward(self, node: Tensor, edge: Tensor, source: Tensor, target: Tensor) -> Tensor:
            node, edge = self.nodes(node), self.edges(edge)
            for layer in self.layers:
                node, edge = layer(node, edge, source, target)
            return self.head(node)

    ends = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 2, 3, 4, 0])
    return LookAlike(Net(), (tokens()[0, :5], torch.randn(5, 3), *ends))
