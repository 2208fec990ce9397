#!/usr/bin/env python3
"""Repeats random chains of views, copies and casts in PyTorch on the CPU and compares every result.

    BLOCKYARD_TORCH_PYTHON=/path/to/venv/bin/python
    "$BLOCKYARD_TORCH_PYTHON" tools/compare-torch-tensor.py [COUNT] [SEED]

Compared: whether an operation is refused, shape, strides (of axes longer than 1), offset, dtype, contiguity, the suggested
memory format, every value, and what each write did to the first tensor's storage. The known differences are those that
docs/tensor.md names; each one is counted and printed, so that none hides behind them. Ends with 1 at the first other one.
"""

import collections
import json
import pathlib
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}
FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last,
           "channels-last 3-D": torch.channels_last_3d}
known = collections.Counter()


class Different(Exception):
    pass


def start(line):
    count = 1
    for size in line["shape"]:
        count *= size
    values = torch.arange(-(count // 2), count - count // 2)
    return values.to(DTYPES[line["dtype"]]).view(line["shape"])


def suggested(tensor):
    """PyTorch has no Python name for `suggest_memory_format`: what a copy that preserves the format would get."""
    if tensor.dim() == 4 and torch._prims_common.suggest_memory_format(tensor) == torch.channels_last:
        return "channels-last"
    if tensor.dim() == 5 and torch._prims_common.suggest_memory_format(tensor) == torch.channels_last_3d:
        return "channels-last 3-D"
    return "contiguous"


def perform(line, tensors):
    op, tensor = line["op"], tensors[line["on"]]
    axis, a, b, c = line.get("args", [0] * 4)
    rank = tensor.dim()
    match op:
        case "narrow": return tensor.narrow(axis, a, b)
        case "slice": return tensor[(slice(None),) * axis + (slice(a, max(a, b), c + 1),)]
        case "select": return tensor.select(axis, a)
        case "transpose": return tensor.transpose(axis, b)
        case "unfold": return tensor.unfold(axis, b, c + 1)
        case "squeeze": return tensor.squeeze()
        case "squeeze_axis": return tensor.squeeze(axis)
        case "unsqueeze": return tensor.unsqueeze(min(b, rank))
        case "flatten": return tensor.flatten(axis, min(b, rank - 1))
        case "contiguous": return tensor.contiguous()
        case "clone": return tensor.clone()
        case "permute": return tensor.permute([(other + axis) % rank for other in range(rank)])
        case "view": return tensor.view(line["shape"])
        case "reshape": return tensor.reshape(line["shape"])
        case "expand": return tensor.expand(line["shape"])
        case "to": return tensor.to(DTYPES[line["dtype"]])
        case "fill_": return tensor.fill_(c + 40)
        case "copy_": return tensor.copy_(tensors[line["from"]])
        case "channels_last":
            wanted = torch.channels_last_3d if rank == 5 else torch.channels_last
            return tensor.contiguous(memory_format=wanted)
    raise Different(f"unknown operation {op}")


def doubles(tensor):
    """Whether two indices lead to one element."""
    places = torch.zeros(tensor.shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        shape = [1] * tensor.dim()
        shape[axis] = size
        places += (torch.arange(size) * stride).view(shape)
    return places.unique().numel() != places.numel()


def compare(what, ours, theirs):
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        # Of a long list, the first that differ.
        pairs = [(at, pair) for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]]
        if pairs:
            raise Different(f"{what}: at {pairs[0][0]}, {pairs[0][1][0]} here, {pairs[0][1][1]} in PyTorch")
    elif ours != theirs:
        raise Different(f"{what}: {ours} here, {theirs} in PyTorch")


def values(tensor):
    return tensor.to(torch.float64).flatten().tolist()


def check(line, result, tensors):
    compare("shape", line["shape"], list(result.shape))
    compare("dtype", DTYPES[line["dtype"]], result.dtype)
    compare("values", line["values"], values(result))
    if result.numel() == 0:
        return
    long = [axis for axis, size in enumerate(result.shape) if size > 1]
    strides = list(result.stride())
    if [line["strides"][axis] for axis in long] != [strides[axis] for axis in long]:
        # A copy of what is not dense: PyTorch keeps the order of the strides.
        if line["op"] in ("clone", "to") and not line["contiguous_source"]:
            known["a copy of a tensor with gaps or doubles is contiguous, PyTorch keeps the order of strides"] += 1
            raise StopIteration
        compare("strides", line["strides"], strides)
    compare("offset", line["offset"], result.storage_offset())
    compare("contiguous", line["contiguous"], result.is_contiguous())
    if result.dim() == 4:
        compare("channels last", line["channels_last"], result.is_contiguous(memory_format=torch.channels_last))
    if result.dim() == 5:
        compare("channels last 3d", line["channels_last_3d"],
                result.is_contiguous(memory_format=torch.channels_last_3d))
    if line["strides"] == strides:
        compare("suggested", line["suggested"], suggested(result))


def share(a, b):
    """Whether the two may have bytes in common."""
    def ends(tensor):
        far = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        return tensor.data_ptr(), tensor.data_ptr() + (far + 1) * tensor.element_size()
    (start, end), (other, other_end) = ends(a), ends(b)
    return start < other_end and other < end


def dense(tensor):
    order = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)
    expected = 1
    for stride, size in order:
        if stride != expected:
            return False
        expected *= size
    return True


def excused(line, tensors, refused_here):
    """A refusal on one side only that docs/tensor.md speaks of."""
    tensor = tensors[line["on"]]
    if line["op"] in ("copy_", "fill_"):
        if refused_here and doubles(tensor):
            return "a write to elements that share memory is refused"
        if not refused_here and line["op"] == "copy_":
            return "a copy between overlapping parts works"
    return None


def repeat(lines):
    tensors = [start(lines[0])]
    check({**lines[0]["result"], "op": "start"}, tensors[0], tensors)
    for line in lines[1:]:
        source = tensors[line["on"]]
        ours = line["result"]
        if line["op"] == "to" and source.dtype.is_floating_point and not DTYPES[line["dtype"]].is_floating_point \
                and DTYPES[line["dtype"]] != torch.bool and outside(source, DTYPES[line["dtype"]]):
            known["a float beyond the range of an integer"] += 1
            return
        if line["op"] == "copy_" and "error" not in ours and outside(tensors[line["from"]], source.dtype):
            known["a float beyond the range of an integer"] += 1
            return
        refused_here = "error" in ours
        if refused_here and line["op"] in ("copy_", "fill_") and doubles(source):
            # PyTorch may let it pass and would change its storage.
            known["a write to elements that share memory is refused"] += 1
            continue
        try:
            result, refused = perform(line, tensors), None
        except (RuntimeError, IndexError) as error:
            result, refused = None, str(error)
        if refused_here != (refused is not None):
            reason = excused(line, tensors, refused_here)
            if reason is None:
                raise Different(f"{line['op']}: {ours.get('error', 'done')} here, {refused or 'done'} in PyTorch")
            known[reason] += 1
            return
        if refused_here:
            continue
        try:
            check({**ours, "op": line["op"], "contiguous_source": dense(source)}, result, tensors)
        except StopIteration:
            result = result.contiguous()
        except Different:
            if line["op"] != "copy_" or not share(source, tensors[line["from"]]):
                raise
            known["a copy between overlapping parts reads its source first, PyTorch does not notice"] += 1
            return
        compare("the first tensor after it", line["first"], values(tensors[0]))
        tensors.append(result)


def outside(tensor, dtype):
    if dtype.is_floating_point or dtype == torch.bool or not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return False
    limits = torch.iinfo(dtype)
    return bool(((tensor < limits.min) | (tensor > limits.max)).any())


def main():
    count, seed = (sys.argv[1:] + ["1000", "1"])[:2] if len(sys.argv) < 3 else sys.argv[1:3]
    command = ["cargo", "run", "--quiet", "--example", "tensor_cases", "--", count, seed]
    steps = 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as cases:
        for number, text in enumerate(cases.stdout):
            lines = json.loads(text)
            steps += len(lines)
            try:
                repeat(lines)
            except Different as different:
                for line in lines:
                    line.pop("first")
                    line["result"].pop("values", None)
                    print(json.dumps(line))
                print(f"case {int(seed) + number}: {different}", file=sys.stderr)
                cases.kill()
                return 1
    if cases.returncode:
        return cases.returncode
    print(f"PyTorch {torch.__version__}: {count} chains, {steps} results compared, all alike but for")
    for reason, times in known.most_common():
        print(f"  {times:6} x {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
