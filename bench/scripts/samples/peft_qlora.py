"""QLoRA by transformers, bitsandbytes and peft on a Llama, in a plain loop: python peft_qlora.py [--paged]."""

import sys
import tempfile

import torch
import transformers
from bitsandbytes.optim import PagedAdamW8bit
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

folder = tempfile.mkdtemp()
config = transformers.LlamaConfig(
    num_hidden_layers=4, hidden_size=512, intermediate_size=1376, num_attention_heads=8
)
transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder,
    quantization_config=transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    ),
    device_map={"": 0},
)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
model.print_trainable_parameters()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = PagedAdamW8bit(trained, lr=1e-4) if "--paged" in sys.argv else torch.optim.AdamW(trained, lr=1e-4)
for _ in range(4):
    tokens = torch.randint(0, 1000, (4, 256)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item())
model.save_pretrained("adapter")
