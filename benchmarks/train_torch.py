"""The PyTorch side of benchmarks/train.py: a network of torchvision or timm with the usual optimizations."""

import gc
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
import torchvision


def main() -> None:
    settings = json.loads(sys.argv[1])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    start = time.perf_counter()
    net = make(settings)
    torch.save(net.state_dict(), settings["weights"] + ".part")
    os.replace(settings["weights"] + ".part", settings["weights"])
    net = net.to(device, memory_format=torch.channels_last).train()
    checks = reference(net, settings, device)
    torch.set_float32_matmul_precision("high")

    rng = np.random.default_rng(1)
    shape = (settings["batch"], 3, settings["image"], settings["image"])
    batches = [
        (
            torch.from_numpy(rng.standard_normal(shape, np.float32)).to(device, memory_format=torch.channels_last),
            torch.from_numpy(rng.integers(0, 1000, settings["batch"])).to(device),
        )
        for _ in range(4)
    ]
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    model = torch.compile(net, dynamic=False) if settings["compile"] else net

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def run(steps: int) -> float:
        wait(device)
        begin = time.perf_counter()
        for i in range(steps):
            step(*batches[i % len(batches)])
        wait(device)
        return time.perf_counter() - begin

    first = float(step(*batches[0]))
    run(5)
    gc.collect()
    gc.freeze()
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    reply(
        {
            **checks,
            "first_loss": first,
            "build_seconds": time.perf_counter() - start,
            "device": name,
            "versions": {"torch": torch.__version__, "torchvision": torchvision.__version__},
        }
    )
    for line in sys.stdin:
        request = json.loads(line)
        if request["command"] == "time":
            reply({"seconds": run(request["steps"])})
        else:
            reply({"kernels": profile(run, request["steps"], device)})


def make(settings: dict[str, Any]) -> torch.nn.Module:
    """Build the network; scaled branches count from the start, so that a check of the loss covers them."""
    if settings["library"] == "timm":
        import timm

        net = timm.create_model(settings["network"])
    else:
        net = getattr(torchvision.models, settings["network"])(weights=None)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith("layer_scale"):
                value.fill_(0.3)
            elif name.startswith("head") and name.endswith("weight"):
                value.normal_(0, 0.02)
    return net


def reference(net: torch.nn.Module, settings: dict[str, Any], device: str) -> dict[str, Any]:
    """Return loss and gradient norm of a few images in float32, without stochastic depth; restore the state."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, settings["image"], settings["image"]), np.float32)
    labels = rng.integers(0, 1000, 8)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    drops = [module for module in net.modules() if isinstance(module, torchvision.ops.StochasticDepth)]
    rates = [module.p for module in drops]
    for module in drops:
        module.p = 0.0
    torch.backends.cudnn.allow_tf32 = False
    loss = torch.nn.functional.cross_entropy(
        net(torch.from_numpy(images).to(device)), torch.from_numpy(labels).to(device)
    )
    loss.backward()
    torch.backends.cudnn.allow_tf32 = True
    norm = torch.stack([p.grad.square().sum() for p in net.parameters()]).sum().sqrt()
    for module, rate in zip(drops, rates, strict=True):
        module.p = rate
    net.zero_grad(set_to_none=True)
    net.load_state_dict(before)
    count = sum(p.numel() for p in net.parameters())
    return {"parameters": count, "loss": loss.item(), "gradient": norm.item()}


def profile(run: Any, steps: int, device: str) -> list[dict[str, Any]]:
    """Return the longest kernels, in milliseconds per step."""
    from torch.profiler import ProfilerActivity

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.profiler.profile(activities=kinds) as taken:
        run(steps)
    total: dict[str, list[float]] = {}
    for event in taken.key_averages():
        spent = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        total[event.key] = [spent / 1e3 / steps, event.count / steps]
    longest = sorted(total.items(), key=lambda item: -item[1][0])[:40]
    return [{"kernel": name[:160], "ms": ms, "calls": calls} for name, (ms, calls) in longest]


def wait(device: str) -> None:
    """Wait for the accelerator."""
    if device == "cuda":
        torch.cuda.synchronize()


def reply(values: dict[str, Any]) -> None:
    """Send one reply."""
    print("@" + json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
