"""A Llama divided among ranks by FSDP: torchrun --standalone --nproc-per-node 2 fsdp_loop.py [--wrapped]."""

import functools
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
config = transformers.LlamaConfig(
    num_hidden_layers=8, hidden_size=1024, intermediate_size=2752, num_attention_heads=16
)
model = transformers.LlamaForCausalLM(config)
half = torch.bfloat16
if "--wrapped" in sys.argv:
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=half),
        device_id=local_rank,
    )
else:
    model = model.to(local_rank)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=half))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=half))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(6):
    tokens = torch.randint(0, 1000, (4, 512)).to(local_rank)
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(loss.item())
dist.destroy_process_group()
