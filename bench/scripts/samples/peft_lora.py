"""LoRA on a causal language model by peft, in a plain loop: python peft_lora.py [--checkpointing]."""

import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model

config = transformers.LlamaConfig(
    num_hidden_layers=4, hidden_size=512, intermediate_size=1376, num_attention_heads=8
)
model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
if "--checkpointing" in sys.argv:
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
model = get_peft_model(
    model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
).to("cuda")
model.print_trainable_parameters()
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-4)
for _ in range(4):
    tokens = torch.randint(0, 1000, (4, 256)).cuda()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item())
model.save_pretrained("adapter")
