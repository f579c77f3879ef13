"""Real models that are neither trained on nor held out: what the reading of texts was developed on.

Nobody measured them. Each is traced (`gpumemnet.trace`), which agrees with an H200 within about a percent, and the
account of each of its texts is held against the trace. No name is in the held-out list; about a tenth are later or
larger relatives of one (xception71, inception_v4, regnetx_032, ghostnetv3_100, swinv2, convnextv2, deberta).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from gpumemnet.allocator import replay
from gpumemnet.dataset.config import Configuration
from gpumemnet.dataset.draw import Draw
from gpumemnet.dataset.summaries import torchinfo_text, torchsummary_text
from gpumemnet.dataset.workload import make_inputs, workload
from gpumemnet.errors import GpuMemNetError
from gpumemnet.evaluate.scores import markdown, percent
from gpumemnet.profile import profile_summary
from gpumemnet.trace.rows import trace_configuration
from gpumemnet.training import OPTIMIZERS, PRECISIONS, TrainingSetup
from gpumemnet.units import MIB

_FAILURES = (RuntimeError, AttributeError, TypeError, ValueError, AssertionError, NotImplementedError)
SEED = 777
CUBLAS_BYTES = 64 * MIB
"""What cuBLAS keeps, which the trace includes and the account of a text does not."""
TIMM = """
cspresnet50:256 cspdarknet53:256 regnetx_032:224 res2net50_26w_4s:224 selecsls42b:224 dla34:224
ese_vovnet19b_dw:224 rexnet_100:224 hardcorenas_a:224 lcnet_100:224 tinynet_a:192 efficientvit_b1:224
levit_192:224 mobilevit_s:256 edgenext_small:256 convit_small:224 crossvit_15_240:240 davit_tiny:224
focalnet_tiny_srf:224 gcvit_xxtiny:224 coatnet_0_rw_224:224 nest_tiny:224 pit_s_224:224 tnt_s_patch16_224:224
tresnet_m:224 visformer_small:224 volo_d1_224:224 xcit_tiny_12_p16_224:224 mvitv2_tiny:224 repvgg_a2:224
resnest26d:224 skresnet34:224 inception_v4:299 inception_resnet_v2:299 nasnetalarge:224 pnasnet5large:224
caformer_s18:224 efficientformer_l1:224 swinv2_tiny_window8_256:256 tiny_vit_11m_224:224
eva02_small_patch14_224:224 hiera_tiny_224:224 repghostnet_100:224 mobileone_s1:224 starnet_s3:224
fastvit_t12:256 inception_next_tiny:224 sequencer2d_s:224 vovnet39a:224 gernet_m:224 darknet53:256
botnet26t_256:256 halonet26t:256 lambda_resnet26t:256 cs3darknet_m:256 xception71:299 gmixer_24_224:224
mambaout_tiny:224 rdnet_tiny:224 mobilenetv4_conv_small:224 ghostnetv3_100:224 shvit_s1:224
vitamin_small_224:224
"""
TRANSFORMERS = """
mpnet:SequenceClassification:256 funnel:SequenceClassification:256 convbert:SequenceClassification:256
deberta:SequenceClassification:256 ernie:MaskedLM:256 flaubert:SequenceClassification:256 fnet:MaskedLM:512
mobilebert:MaskedLM:256 squeezebert:SequenceClassification:256 xlnet:SequenceClassification:256
roformer:MaskedLM:256 gpt_bigcode:CausalLM:512 marian:Seq2SeqLM:256 dinov2:ImageClassification:224
convnextv2:ImageClassification:224 cvt:ImageClassification:224 layoutlm:SequenceClassification:256
nystromformer:SequenceClassification:512
"""


def configurations() -> list[Configuration]:
    """Return each model once, with a drawn batch size, optimizer and precision."""
    entries: list[dict[str, Any]] = []
    for name, size in (text.split(":") for text in TIMM.split()):
        entries.append({"source": "timm", "name": name, "size": int(size)})
    for name, task, size in (text.split(":") for text in TRANSFORMERS.split()):
        entries.append({"source": "transformers", "name": name, "task": task, "size": int(size)})
    found = []
    for index, entry in enumerate(entries):
        draw = Draw(SEED, index)
        words = entry["source"] == "transformers" and "Image" not in entry["task"]
        found.append(
            Configuration(
                seed=SEED,
                index=index,
                family="real",
                style=f"{entry['source']}:{entry['name']}",
                arch=entry,
                batch_size=2 ** draw.integer(1, 6),
                seq_len=entry["size"] if words else None,
                optimizer=draw.choice(OPTIMIZERS),
                precision=draw.choice(PRECISIONS),
                gradient_checkpointing=False,
            )
        )
    return found


def texts(config: Configuration) -> dict[str, str]:
    """Return the model's texts: torchinfo's default of three levels and all levels, torchsummary, print(model)."""
    work = workload(config)
    device = torch.device("meta")
    with device:
        model = work.build()
    args, kwargs = make_inputs(work, config.batch_size, device, torch.float32)
    found = {"print(model)": repr(model)}
    makers: dict[str, Callable[[], str]] = {
        "torchinfo, 3 levels": lambda: torchinfo_text(model, args, kwargs, device, depth=3),
        "torchinfo, all levels": lambda: torchinfo_text(model, args, kwargs, device, depth=12),
    }
    if not kwargs:
        makers["torchsummary"] = lambda: torchsummary_text(model, args)
    for name, make in makers.items():
        with torch.no_grad(), suppress(*_FAILURES):
            found[name] = make()
    return found


def errors(config: Configuration) -> dict[str, float]:
    """Return the logarithm of account over trace for each text of one model."""
    traced = replay(trace_configuration(config).events).reserved_bytes
    setup = TrainingSetup(
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        optimizer=config.optimizer,
        precision=config.precision,
    )
    found = {}
    for name, text in texts(config).items():
        try:
            profile = profile_summary(text, setup)
        except GpuMemNetError:
            continue
        multiplies = profile.linears + profile.attentions + profile.recurrents > 0
        found[name] = math.log((profile.reserved_bytes + CUBLAS_BYTES * multiplies) / traced)
    return found


def table() -> str:
    """Trace all models and lay out how far the accounts of their texts are off."""
    found: dict[str, list[float]] = defaultdict(list)
    for config in configurations():
        try:
            answers = errors(config)
        except (*_FAILURES, GpuMemNetError, ImportError):
            continue  # a library is missing, or the model does not run on fake tensors
        for name, value in answers.items():
            found[name].append(value)
    rows = []
    for name, values in sorted(found.items()):
        off = np.abs(np.expm1(values))
        rows.append(
            [name, str(len(off)), percent(float(np.median(off))), percent(float(np.quantile(off, 0.9)))]
        )
    return markdown(["account of", "models", "median error", "P90 error"], rows)
