"""Build the chain of layers that each of many texts shows in PyTorch and trace it: the third column of a list.

    python bench/estimator/texts_traced.py < LIST > LIST_WITH_NEEDS

Standard input: file, options, anything, with tabs between. Texts that are no chain are named on standard error.
"""

import json, math, os, re, sys
import torch
from torch import nn
from gpumemnet.profile.build import with_shapes
from gpumemnet.summaries.texts.read import rows_of, text_of
from gpumemnet.summaries.texts import kinds
from gpumemnet.names import Group
from gpumemnet.training import TrainingSetup

ACT = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leakyrelu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "softmax": lambda: nn.Softmax(-1),
    "logsoftmax": lambda: nn.LogSoftmax(-1),
    "relu6": nn.ReLU6,
    "hardswish": nn.Hardswish,
    "mish": nn.Mish,
}


class Broken(Exception):
    pass


class First(nn.Module):
    def __init__(s, m):
        super().__init__()
        s.m = m

    def forward(s, x):
        return s.m(x)[0]


class Flat(nn.Module):
    def forward(s, x):
        return x.flatten(1)


class Last(nn.Module):
    def forward(s, x):
        return x[:, -1]


def build(summary, batch):
    mods, cur, inp, ints = [], None, None, None
    for l in summary.layers:
        if l.is_block or not l.runs or l.kind in ("identity", "flatten", "parameter"):
            if l.kind == "parameter":
                raise Broken("parameter")
            continue
        outs = l.output_shapes
        if not outs:
            raise Broken("no shape")
        o = tuple(batch if i == 0 else d for i, d in enumerate(outs[0]))
        if any(d is None for d in o):
            raise Broken("open")
        g = kinds.group_of(l.kind)
        p = l.params or 0
        if cur is None:
            if g is Group.EMBEDDING:
                inp = (batch, *o[1:-1])
                ints = True
                cur = inp
            elif l.input_shapes:
                inp = tuple(batch if i == 0 else d for i, d in enumerate(l.input_shapes[0]))
                cur = inp
            elif g is Group.LINEAR:
                n = o[-1]
                i = p // n - 1 if p % n == 0 else None
                if not i:
                    raise Broken("first")
                inp = cur = (*o[:-1], i)
            elif g is Group.CONV:
                found = None
                for c in (3, 1, 4, 2):
                    k2 = (p - o[1]) / (c * o[1])
                    if k2 == int(k2) and int(k2) > 0:
                        k = round(k2 ** (1 / (len(o) - 2)))
                        if k ** (len(o) - 2) == k2 and k % 2 | (k < 5):
                            found = (c, k)
                            break
                if not found:
                    raise Broken("first conv")
                c, k = found
                inp = cur = (batch, c, *[d + (k - 1 if not os.environ.get("SAME") else 0) for d in o[2:]])
            else:
                raise Broken("first " + l.kind)
        if g is Group.CONV:
            d = len(cur) - 2
            if len(o) != len(cur):
                raise Broken("rank")
            kk = l.args.get("kernel_size")
            tr = "transpose" in l.kind
            ks = [kk] if isinstance(kk, int) else [kk[0]] if isinstance(kk, tuple) and kk else range(1, 12)
            ok = None
            for k in ks:
                for groups in (1, cur[1]):
                    for bias in (0, 1):
                        if cur[1] % groups or o[1] % groups:
                            continue
                        if cur[1] * o[1] // groups * k**d + bias * o[1] == p:
                            ok = ok or (k, groups, bias)
            if not ok:
                raise Broken(f"conv {l.name} {cur} {o} {p}")
            k, groups, bias = ok
            fit = None
            for s in (1, 2, 4, 3, 5, 8, 16, 32):
                for pad in range(0, k + 1):
                    if tr:
                        for op in range(0, s):
                            if all((a - 1) * s - 2 * pad + k + op == b for a, b in zip(cur[2:], o[2:])):
                                fit = fit or (s, pad, op)
                    elif all((a + 2 * pad - k) // s + 1 == b for a, b in zip(cur[2:], o[2:])):
                        fit = fit or (s, pad, 0)
            if not fit:
                raise Broken(f"geometry {l.name} {cur} {o} k{k}")
            s, pad, op = fit
            if tr:
                mods.append(
                    getattr(nn, f"ConvTranspose{d}d")(
                        cur[1], o[1], k, s, pad, op, groups=groups, bias=bool(bias)
                    )
                )
            else:
                mods.append(getattr(nn, f"Conv{d}d")(cur[1], o[1], k, s, pad, groups=groups, bias=bool(bias)))
        elif g is Group.LINEAR:
            n = o[-1]
            cand = [(i, b) for b in (1, 0) if p % n == 0 for i in [p // n - b] if i > 0]
            hit = (
                next(((i, b, "same") for i, b in cand if cur[-1] == i and len(cur) == len(o)), None)
                or next(((i, b, "flat") for i, b in cand if math.prod(cur[1:]) == i), None)
                or next(
                    ((i, b, "last") for i, b in cand if cur[-1] == i and len(cur) == 3 and len(o) == 2), None
                )
            )
            if not hit:
                raise Broken(f"linear {l.name} {cur} {o} {p}")
            if hit[2] == "flat" and len(cur) > 2:
                mods.append(Flat())
            if hit[2] == "last":
                mods.append(Last())
            mods.append(nn.Linear(hit[0], n, bias=bool(hit[1])))
        elif g is Group.BATCHNORM:
            mods.append(
                {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(cur)](
                    cur[1], affine=p > 0
                )
            )
            o = cur
        elif g is Group.LAYERNORM:
            if cur[-1] * 2 != p:
                raise Broken("norm")
            mods.append(nn.LayerNorm(cur[-1]))
            o = cur
        elif g is Group.ACTIVATION:
            a = ACT.get(l.kind)
            if not a or math.prod(o) != math.prod(cur):
                raise Broken("act " + l.kind)
            mods.append(
                a(inplace=True)
                if l.kind in ("relu", "relu6", "silu", "leakyrelu")
                and (l.args.get("inplace") is True or "inplace" in l.args.values())
                else a()
            )
            o = cur
        elif g is Group.DROPOUT:
            mods.append(nn.Dropout())
            o = cur
        elif g is Group.POOL:
            if len(cur) < 3:
                raise Broken("pool")
            d = len(cur) - 2
            kind = "Max" if "max" in l.kind else "Avg"
            if "adaptive" in l.kind or len(o) != len(cur):
                mods.append(getattr(nn, f"Adaptive{kind}Pool{d}d")(tuple(o[2:]) if len(o) == len(cur) else 1))
                o = o if len(o) == len(cur) else (*cur[:2], *(1,) * d)
            else:
                r = [max(round(a / b), 1) for a, b in zip(cur[2:], o[2:])]
                ok = None
                for k in (r[0], 3, 2, 5):
                    for s in (r[0], r[0] + 1, 1):
                        for pad in range(0, k // 2 + 1):
                            if all((a + 2 * pad - k) // s + 1 == b for a, b in zip(cur[2:], o[2:])):
                                ok = ok or (k, s, pad)
                if not ok:
                    raise Broken(f"pool {cur} {o}")
                mods.append(getattr(nn, f"{kind}Pool{d}d")(*ok))
        elif g is Group.EMBEDDING:
            if ints is not True:
                raise Broken("embedding")
            ints = "done"
            n = o[-1]
            mods.append(nn.Embedding(p // n, n))
        elif g is Group.RNN:
            cls = nn.LSTM if "lstm" in l.kind else nn.GRU if "gru" in l.kind else nn.RNN
            if len(cur) != 3:
                raise Broken("rnn")
            hit = None
            for bi in (False, True):
                for layers in (1, 2, 3):
                    h = o[-1] // (2 if bi else 1)
                    with torch.device("meta"):
                        m = cls(cur[-1], h, layers, bidirectional=bi, batch_first=True)
                    n = sum(x.numel() for x in m.parameters())
                    if abs(n - p) <= 8 * h * layers * 2:
                        hit = hit or (h, layers, bi)
            if not hit:
                raise Broken(f"rnn {cur} {o} {p}")
            h, layers, bi = hit
            mods.append(First(cls(cur[-1], h, layers, bidirectional=bi, batch_first=True)))
            if len(o) == 2:
                mods.append(Last())
            else:
                o = (*cur[:2], o[-1])
        elif g in (Group.VIEW,):
            if math.prod(o) == math.prod(cur) and len(o) == 2 and len(cur) > 2:
                mods.append(Flat())
            elif o == cur:
                continue
            elif math.prod(o) == math.prod(cur):
                mods.append(nn.Unflatten(1, o[1:])) if len(cur) == 2 else (_ for _ in ()).throw(
                    Broken("view")
                )
            else:
                raise Broken("view")
        elif l.kind.startswith("upsample"):
            mods.append(nn.Upsample(size=tuple(o[2:])))
        else:
            raise Broken(l.kind)
        cur = o
        if not l.trainable and mods:
            for q in mods[-1].parameters():
                q.requires_grad_(False)
    if not mods:
        raise Broken("empty")
    return nn.Sequential(*mods), inp, bool(ints)


def model():
    spec = json.loads(os.environ["CHAIN"])
    setup = TrainingSetup(batch_size=spec["batch"], seq_len=spec["seq"], stated=frozenset({"batch_size"}))
    text, path = text_of(spec["file"])
    return build(with_shapes(rows_of(text, setup, path=path), setup), spec["batch"])[0]


def main():
    from gpumemnet.cli import answer

    gpu = "h200"
    why = {}
    for line in sys.stdin:
        file, options, _ = (line.rstrip("\n").split("\t") + ["", ""])[:3]
        batch = int(re.search(r"batch-size (\d+)", options)[1])
        m = re.search(r"seq-len (\d+)", options)
        seq = int(m[1]) if m else None
        try:
            setup = TrainingSetup(batch_size=batch, seq_len=seq, stated=frozenset({"batch_size"}))
            text, path = text_of(file)
            summary = with_shapes(rows_of(text, setup, path=path), setup)
            with torch.device("meta"):
                net, inp, ints = build(summary, batch)
            n = sum(x.numel() for x in net.parameters())
            total = summary.total_params or sum(l.params or 0 for l in summary.layers)
            if total and abs(n - total) > 0.02 * total:
                raise Broken(f"params {n} {total}")
            os.environ["CHAIN"] = json.dumps({"file": file, "batch": batch, "seq": seq})
            got = answer.for_module(
                f"{__file__}:model",
                ("x".join(map(str, inp)) + (":int64" if ints else ""),),
                setup,
                gpu=gpu,
                estimator="rad",
                save=None,
            )
            print(f"{file}\t{options}\t{round(got.estimate_bytes / 2**20)}", flush=True)
        except Exception as exc:
            w = f"{type(exc).__name__}: {str(exc)[:70]}"
            print(file.rsplit("/")[-1], w, file=sys.stderr)


if __name__ == "__main__":
    main()
