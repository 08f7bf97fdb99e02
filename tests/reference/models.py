"""The nets again, written as plain functions of named weights, from the papers. Imports nothing from calgrad.

ResNets use torchvision's names, so the same functions check that its files load rightly.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def conv(weights, name, x, stride=1):
    weight = weights[f"{name}.weight"]
    return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)


def norm(weights, name, x):
    """Batch norm in evaluation, written out."""
    mean, var, scale, shift = (
        weights[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(var + 1e-5) * scale + shift


def resnet_shapes(bottleneck, depths, widths, stem_width, *, kernel, classes, pooled=1, shortcut="B"):
    """Every tensor of a torchvision-style ResNet, by name."""
    shapes = {}

    def add(name, outputs, inputs, size, norm_name):
        shapes[f"{name}.weight"] = (outputs, inputs, size, size)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm_name}.{part}"] = (outputs,)

    add("conv1", stem_width, 3, kernel, "bn1")
    inputs = stem_width
    for stage, (depth, width) in enumerate(zip(depths, widths), start=1):
        for block in range(depth):
            at = f"layer{stage}.{block}"
            outputs = 4 * width if bottleneck else width
            plan = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)] if bottleneck else [
                (width, inputs, 3), (width, width, 3)]  # fmt: skip
            for index, (out, into, size) in enumerate(plan, start=1):
                add(f"{at}.conv{index}", out, into, size, f"{at}.bn{index}")
            if (inputs != outputs or (stage > 1 and block == 0)) and shortcut == "B":
                add(f"{at}.downsample.0", outputs, inputs, 1, f"{at}.downsample.1")
            inputs = outputs
    shapes["fc.weight"], shapes["fc.bias"] = (classes, inputs * pooled**2), (classes,)
    return shapes


def random_weights(shapes, seed=0):
    """Weights under which activations neither vanish nor explode, in float64."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith("running_var"):
            weights[name] = drawn.abs() + 0.5
        elif len(shape) == 4:
            weights[name] = drawn * (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
        elif len(shape) == 2:
            weights[name] = drawn / shape[1] ** 0.5
        elif name.endswith(".weight"):
            weights[name] = 0.5 + 0.2 * drawn
        else:
            weights[name] = 0.1 * drawn
    return weights


def resnet(weights, x, depths, *, bottleneck, large=False, pooled=1):
    """[He et al. 2016] with projection shortcuts (B), or zero-padded ones (A) where the weights have none."""
    x = F.relu(norm(weights, "bn1", conv(weights, "conv1", x, 2 if large else 1)))
    if large:
        x = F.max_pool2d(x, 3, 2, 1)
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            count = 3 if bottleneck else 2
            out = x
            for index in range(1, count + 1):
                strided = index == (2 if bottleneck else 1)
                out = norm(
                    weights, f"{at}.bn{index}", conv(weights, f"{at}.conv{index}", out, stride if strided else 1)
                )
                out = F.relu(out) if index < count else out
            if f"{at}.downsample.0.weight" in weights:
                x = norm(weights, f"{at}.downsample.1", conv(weights, f"{at}.downsample.0", x, stride))
            elif x.shape != out.shape:
                padded = torch.zeros_like(out)
                first = (out.shape[1] - x.shape[1]) // 2
                padded[:, first : first + x.shape[1]] = x[:, :, ::2, ::2]
                x = padded
            x = F.relu(out + x)
    x = F.adaptive_avg_pool2d(x, pooled).flatten(1)
    return x @ weights["fc.weight"].T + weights["fc.bias"]


def wide_resnet(weights, x, blocks):
    """[Zagoruyko and Komodakis 2016] pre-activation; names: stem.0, stages.i.j.{bn1,conv1,bn2,conv2,shortcut}, norm, head."""
    x = conv(weights, "stem.0", x)
    for stage in range(3):
        for block in range(blocks):
            at, stride = f"stages.{stage}.{block}", 2 if stage and not block else 1
            ready = F.relu(norm(weights, f"{at}.bn1", x))
            out = conv(weights, f"{at}.conv1", ready, stride)
            out = conv(weights, f"{at}.conv2", F.relu(norm(weights, f"{at}.bn2", out)))
            x = out + (conv(weights, f"{at}.shortcut", ready, stride) if f"{at}.shortcut.weight" in weights else x)
    x = F.relu(norm(weights, "norm", x)).mean(dim=(2, 3))
    return x @ weights["head.weight"].T + weights["head.bias"]


def densenet(weights, x, depths):
    """[Huang et al. 2017] with bottlenecks; names: stem, blocks.i.j.{norm1,conv1,norm2,conv2}, blocks.i.{norm,conv}."""
    x = conv(weights, "stem", x)
    for index, depth in enumerate(depths):
        for layer in range(depth):
            at = f"blocks.{2 * index}.{layer}"
            new = conv(weights, f"{at}.conv1", F.relu(norm(weights, f"{at}.norm1", x)))
            new = conv(weights, f"{at}.conv2", F.relu(norm(weights, f"{at}.norm2", new)))
            x = torch.cat([x, new], dim=1)
        if index < len(depths) - 1:
            at = f"blocks.{2 * index + 1}"
            x = F.avg_pool2d(conv(weights, f"{at}.conv", F.relu(norm(weights, f"{at}.norm", x))), 2)
    x = F.relu(norm(weights, "norm", x)).mean(dim=(2, 3))
    return x @ weights["head.weight"].T + weights["head.bias"]
