"""Names of real models for evaluation, and others for training. Data only.

The two sets share no name, and none of the thesis' eighteen models is used for training. Some training models are still
related to a held-out one (skresnet34 and res2net50 to ResNet, pegasus to BART, switch_transformers to T5, olmo2 to
LLaMA), but none is a near twin: those are removed when rows are packed (see splits.py).
"""

from __future__ import annotations

# Held out: (name, image size, usual batch size)
TORCHVISION: tuple[tuple[str, int, int], ...] = (
    ("alexnet", 224, 512),
    ("vgg11", 224, 128),
    ("vgg16_bn", 224, 96),
    ("resnet18", 224, 256),
    ("resnet50", 224, 192),
    ("resnet101", 224, 96),
    ("wide_resnet50_2", 224, 96),
    ("resnext50_32x4d", 224, 128),
    ("densenet121", 224, 96),
    ("googlenet", 224, 256),
    ("inception_v3", 299, 128),
    ("mobilenet_v2", 224, 256),
    ("mobilenet_v3_large", 224, 256),
    ("shufflenet_v2_x1_0", 224, 512),
    ("squeezenet1_1", 224, 256),
    ("mnasnet1_0", 224, 256),
    ("efficientnet_b0", 224, 192),
    ("efficientnet_v2_s", 300, 64),
    ("regnet_y_3_2gf", 224, 128),
    ("convnext_tiny", 224, 128),
    ("vit_b_16", 224, 128),
    ("swin_t", 224, 128),
    ("maxvit_t", 224, 48),
)
TIMM: tuple[tuple[str, int, int], ...] = (
    ("resnet34", 224, 256),
    ("resnetv2_50", 224, 128),
    ("seresnet50", 224, 128),
    ("ecaresnet50d", 224, 96),
    ("xception41", 299, 64),
    ("dpn68", 224, 128),
    ("ghostnet_100", 224, 256),
    ("tf_efficientnet_lite0", 224, 192),
    ("mixnet_s", 224, 128),
    ("nfnet_f0", 192, 64),
    ("deit_small_patch16_224", 224, 256),
    ("beit_base_patch16_224", 224, 64),
    ("cait_xxs24_224", 224, 64),
    ("mixer_b16_224", 224, 128),
    ("gmlp_s16_224", 224, 128),
    ("resmlp_24_224", 224, 128),
    ("poolformer_s12", 224, 128),
    ("coat_lite_tiny", 224, 96),
    ("pvt_v2_b1", 224, 96),
    ("twins_svt_small", 224, 96),
    ("convmixer_768_32", 224, 48),
    ("hrnet_w18", 224, 96),
)
# Held out: (name, task, sequence length or image size, usual batch size)
TRANSFORMERS: tuple[tuple[str, str, int, int], ...] = (
    ("bert", "MaskedLM", 512, 48),
    ("bert", "SequenceClassification", 128, 256),
    ("roberta", "SequenceClassification", 256, 96),
    ("distilbert", "SequenceClassification", 256, 128),
    ("albert", "MaskedLM", 256, 64),
    ("electra", "SequenceClassification", 512, 64),
    ("deberta-v2", "SequenceClassification", 256, 32),
    ("gpt2", "CausalLM", 1024, 16),
    ("gpt2", "CausalLM", 256, 64),
    ("gpt_neo", "CausalLM", 512, 8),
    ("opt", "CausalLM", 512, 32),
    ("bloom", "CausalLM", 512, 16),
    ("pythia", "CausalLM", 1024, 8),
    ("llama-small", "CausalLM", 1024, 8),
    ("qwen2-small", "CausalLM", 1024, 8),
    ("t5", "Seq2SeqLM", 256, 48),
    ("bart", "Seq2SeqLM", 256, 48),
    ("vit", "ImageClassification", 224, 128),
    ("swin", "ImageClassification", 224, 96),
    ("segformer", "SemanticSegmentation", 256, 32),
)

TRAINED_TIMM = """
botnet26t_256:256 halonet26t:256 lambda_resnet26t:256 gernet_m:224 mobileone_s1:224 repvgg_a2:224 convit_small:224
crossvit_15_240:240 cspdarknet53:256 cs3darknet_m:256 darknet53:256 davit_tiny:224 dla34:224 dla60x:224
edgenext_small:256 efficientformer_l1:224 efficientformerv2_s1:224 efficientvit_b1:224 efficientvit_m4:224
eva02_small_patch14_224:224 fasternet_t2:224 fastvit_t12:256 fastvit_sa12:256 focalnet_tiny_srf:224 gcvit_xxtiny:224
hardcorenas_a:224 hgnet_tiny:224 hgnetv2_b2:224 hiera_tiny_224:224 inception_next_tiny:224 levit_192:224
levit_conv_256:224 mambaout_tiny:224 coatnet_0_rw_224:224 caformer_s18:224 convformer_s18:224
mobilenetv4_conv_small:224 mobilenetv4_hybrid_medium:224 lcnet_100:224 fbnetv3_b:224 fbnetc_100:224 mobilevit_s:256
mobilevitv2_100:256 mvitv2_tiny:224 nasnetalarge:224 nest_tiny:224 nextvit_small:224 pit_s_224:224 pnasnet5large:224
rdnet_tiny:224 repvit_m1_0:224 res2net50_26w_4s:224 resnest26d:224 rexnet_100:224 rexnetr_150:224 selecsls42b:224
sequencer2d_s:224 shvit_s1:224 skresnet34:224 spnasnet_100:224 starnet_s3:224 swiftformer_s:224 tinynet_a:192
tiny_vit_11m_224:224 tnt_s_patch16_224:224 tresnet_m:224 visformer_small:224 samvit_base_patch16_224:224
vitamin_small_224:224 volo_d1_224:224 vovnet39a:224 ese_vovnet19b_dw:224 xcit_tiny_12_p16_224:224
"""
"""name:image size."""
TRAINED_TRANSFORMERS = """
big_bird:MaskedLM:512 convbert:MaskedLM:256 esm:MaskedLM:256
flaubert:SequenceClassification:256 fnet:MaskedLM:512 funnel:SequenceClassification:256
layoutlm:SequenceClassification:256 longformer:SequenceClassification:1024 megatron-bert:MaskedLM:256
mobilebert:MaskedLM:256 modernbert:MaskedLM:512 mpnet:SequenceClassification:256
nystromformer:SequenceClassification:512 rembert:SequenceClassification:256 roformer:MaskedLM:256
squeezebert:SequenceClassification:256 xlm:SequenceClassification:256 xmod:SequenceClassification:256
biogpt:CausalLM:256 bert-generation:CausalLM:256 ctrl:CausalLM:256 falcon:CausalLM:512 gemma:CausalLM:512
gpt_bigcode:CausalLM:512 gptj:CausalLM:512 mpt:CausalLM:512 olmo2:CausalLM:512 openai-gpt:CausalLM:512
phi:CausalLM:512 stablelm:CausalLM:512 starcoder2:CausalLM:512 xglm:CausalLM:256
blenderbot-small:Seq2SeqLM:128 m2m_100:Seq2SeqLM:128 marian:Seq2SeqLM:256 pegasus:Seq2SeqLM:256
prophetnet:Seq2SeqLM:128 switch_transformers:Seq2SeqLM:256
bit:ImageClassification:224 cvt:ImageClassification:224 dinov2:ImageClassification:224
focalnet:ImageClassification:224 hgnet_v2:ImageClassification:224
mobilevit:ImageClassification:256 swiftformer:ImageClassification:224 mobilevit:SemanticSegmentation:256
"""
"""name:task:sequence length or image size."""
