"""The PyTorch peer: Lift-Splat-Shoot (nv-tlabs/lift-splat-shoot) with the Swin backbone for segmentation, operation for operation as those projects
compute: padded and rolled windows, the lifted volume made, pooling by sorted running sums with its own backward. Parameter names are theirs, so that
weights of either can be loaded."""
import torch
from torch import nn
from torch.nn import functional as F


class WindowAttention(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.side, self.scale = heads, side, (width // heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * side - 1) ** 2, heads) * 0.02)
        grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        offset = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + side - 1
        self.register_buffer("relative_position_index", offset[..., 0] * (2 * side - 1) + offset[..., 1])
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        windows, n, c = x.shape
        q, k, v = self.qkv(x).reshape(windows, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q * self.scale) @ k.transpose(-2, -1)
        weights = weights + self.relative_position_bias_table[self.relative_position_index.view(-1)].view(n, n, -1).permute(2, 0, 1)
        if mask is not None:
            weights = (weights.view(windows // len(mask), len(mask), self.heads, n, n) + mask[None, :, None]).view(-1, self.heads, n, n)
        return self.proj((weights.softmax(-1) @ v).transpose(1, 2).reshape(windows, n, c))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


def windows_of(x, side):
    b, h, w, c = x.shape
    return x.view(b, h // side, side, w // side, side, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, c)


class Block(nn.Module):
    def __init__(self, width, heads, side, shift, drop_path):
        super().__init__()
        self.side, self.shift, self.drop = side, shift, drop_path
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = WindowAttention(width, heads, side), Mlp(width, 4 * width)

    def kept(self, x):
        if not self.training or self.drop == 0:
            return x
        keep = torch.rand((x.shape[0],) + (1,) * (x.dim() - 1)).ge(self.drop) / (1 - self.drop)
        return x * keep

    def forward(self, x, h, w, mask):
        b, _, c = x.shape
        y = F.pad(self.norm1(x).view(b, h, w, c), (0, 0, 0, -w % self.side, 0, -h % self.side))
        ph, pw = y.shape[1:3]
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.attn(windows_of(y, self.side), mask if self.shift else None)
        y = y.view(b, ph // self.side, pw // self.side, self.side, self.side, c).permute(0, 1, 3, 2, 4, 5).reshape(b, ph, pw, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + self.kept(y[:, :h, :w].reshape(b, h * w, c))
        return x + self.kept(self.mlp(self.norm2(x)))


class Merging(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x, h, w):
        b, _, c = x.shape
        x = F.pad(x.view(b, h, w, c), (0, 0, 0, w % 2, 0, h % 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x.view(b, -1, 4 * c)))


class Stage(nn.Module):
    def __init__(self, width, depth, heads, side, drops, last):
        super().__init__()
        self.side = side
        self.blocks = nn.ModuleList(Block(width, heads, side, side // 2 if i % 2 else 0, drops[i]) for i in range(depth))
        if not last:
            self.downsample = Merging(width)

    def forward(self, x, h, w):
        side, shift = self.side, self.side // 2
        region = torch.zeros(1, h + -h % side, w + -w % side, 1)
        cuts = (slice(0, -side), slice(-side, -shift), slice(-shift, None))
        for i, rows in enumerate(cuts):
            for j, columns in enumerate(cuts):
                region[:, rows, columns] = 3 * i + j
        region = windows_of(region, side).squeeze(-1)
        mask = (region[:, None] != region[:, :, None]).float() * -100.0
        for block in self.blocks:
            x = block(x, h, w, mask)
        return x


class PatchEmbed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)

    def forward(self, x):
        x = self.proj(x)
        return self.norm(x.flatten(2).transpose(1, 2)), x.shape[2], x.shape[3]


class Swin(nn.Module):
    def __init__(self, width, depths, heads, drop_path, side=7):
        super().__init__()
        drops = torch.linspace(0, drop_path, sum(depths)).tolist()
        self.patch_embed = PatchEmbed(width)
        self.layers = nn.ModuleList()
        for i, depth in enumerate(depths):
            self.layers.append(Stage(width << i, depth, heads[i], side, drops[sum(depths[:i]):], i == 3))
        self.norm2, self.norm3 = nn.LayerNorm(4 * width), nn.LayerNorm(8 * width)

    def forward(self, x):
        x, h, w = self.patch_embed(x)
        out = []
        for i, layer in enumerate(self.layers):
            x = layer(x, h, w)
            if i >= 2:
                y = (self.norm2 if i == 2 else self.norm3)(x)
                out.append(y.view(-1, h, w, y.shape[2]).permute(0, 3, 1, 2).contiguous())
            if i < 3:
                x = layer.downsample(x, h, w)
                h, w = (h + 1) // 2, (w + 1) // 2
        return out


class Up(nn.Module):
    def __init__(self, inside, out, factor):
        super().__init__()
        self.up = nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=True)
        self.conv = nn.Sequential(nn.Conv2d(inside, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                                  nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class BasicBlock(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x), inplace=True)


class BevEncode(nn.Module):
    def __init__(self, inside, out):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.up1 = Up(64 + 256, 256, 4)
        self.up2 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(256, 128, 3, padding=1, bias=False),
                                 nn.BatchNorm2d(128), nn.ReLU(inplace=True), nn.Conv2d(128, out, 1))

    def forward(self, x):
        half = self.layer1(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.up2(self.up1(self.layer3(self.layer2(half)), half))


class SortedRunningSums(torch.autograd.Function):
    """lift-splat-shoot's pooling: differences of a running total over points in the order of their cells."""

    @staticmethod
    def forward(ctx, x, cells, ranks):
        x = x.cumsum(0)
        last = torch.ones(len(x), dtype=torch.bool)
        last[:-1] = ranks[1:] != ranks[:-1]
        x, cells = x[last], cells[last]
        ctx.save_for_backward(last)
        ctx.mark_non_differentiable(cells)
        return torch.cat((x[:1], x[1:] - x[:-1])), cells

    @staticmethod
    def backward(ctx, grad, _):
        last, = ctx.saved_tensors
        back = torch.cumsum(last, 0)
        back[last] -= 1
        return grad[back], None, None


class CamEncode(nn.Module):
    def __init__(self, depths, channels, width, layers, heads, neck, drop_path):
        super().__init__()
        self.depths, self.channels = depths, channels
        self.trunk = Swin(width, layers, heads, drop_path)
        self.up1 = Up(12 * width, neck, 2)
        self.depthnet = nn.Conv2d(neck, depths + channels, 1)

    def forward(self, x):
        fine, coarse = self.trunk(x)
        x = self.depthnet(self.up1(coarse, fine))
        return x[:, :self.depths].softmax(1).unsqueeze(1) * x[:, self.depths:].unsqueeze(2)


class LiftSplat(nn.Module):
    def __init__(self, xbound, ybound, zbound, dbound, size, channels=64, width=96, layers=(2, 2, 6, 2), heads=(3, 6, 12, 24), neck=512, drop_path=0.2):
        super().__init__()
        bounds = [xbound, ybound, zbound]
        self.register_buffer("dx", torch.tensor([b[2] for b in bounds], dtype=torch.float32))
        self.register_buffer("bx", torch.tensor([b[0] + b[2] / 2 for b in bounds], dtype=torch.float32))
        self.register_buffer("nx", torch.tensor([int((b[1] - b[0]) / b[2]) for b in bounds]))
        d, h, w = torch.arange(*dbound, dtype=torch.float32), size[0] // 16, size[1] // 16
        ys, xs = torch.linspace(0, size[0] - 1, h), torch.linspace(0, size[1] - 1, w)
        self.register_buffer("frustum", torch.stack((xs.expand(len(d), h, w), ys.view(1, h, 1).expand(len(d), h, w), d.view(-1, 1, 1).expand(len(d), h, w)), -1))
        self.camencode = CamEncode(len(d), channels, width, list(layers), list(heads), neck, drop_path)
        self.bevencode = BevEncode(channels * int(self.nx[2]), 1)

    def geometry(self, rots, trans, intrins, post_rots, post_trans):
        b, n, _ = trans.shape
        p = self.frustum - post_trans.view(b, n, 1, 1, 1, 3)
        p = torch.inverse(post_rots).view(b, n, 1, 1, 1, 3, 3).matmul(p.unsqueeze(-1))
        p = torch.cat((p[..., :2, :] * p[..., 2:3, :], p[..., 2:3, :]), -2)
        return rots.matmul(torch.inverse(intrins)).view(b, n, 1, 1, 1, 3, 3).matmul(p).squeeze(-1) + trans.view(b, n, 1, 1, 1, 3)

    def pool(self, geometry, x):
        b, count = x.shape[0], x[..., 0].numel()
        x = x.reshape(count, x.shape[-1])
        cells = ((geometry - (self.bx - self.dx / 2)) / self.dx).long().view(count, 3)
        cells = torch.cat((cells, torch.arange(b).repeat_interleave(count // b).view(-1, 1)), 1)
        kept = ((cells[:, :3] >= 0) & (cells[:, :3] < self.nx)).all(1)
        x, cells = x[kept], cells[kept]
        nx, ny, nz = self.nx.tolist()
        ranks = cells[:, 0] * (ny * nz * b) + cells[:, 1] * (nz * b) + cells[:, 2] * b + cells[:, 3]
        order = ranks.argsort()
        x, cells = SortedRunningSums.apply(x[order], cells[order], ranks[order])
        grid = torch.zeros((b, x.shape[-1], nz, nx, ny))
        grid[cells[:, 3], :, cells[:, 2], cells[:, 0], cells[:, 1]] = x
        return torch.cat(grid.unbind(2), 1)

    def forward(self, imgs, rots, trans, intrins, post_rots, post_trans):
        b, n = imgs.shape[:2]
        x = self.camencode(imgs.flatten(0, 1))
        x = x.view(b, n, *x.shape[1:]).permute(0, 1, 3, 4, 5, 2)
        return self.bevencode(self.pool(self.geometry(rots, trans, intrins, post_rots, post_trans), x))
