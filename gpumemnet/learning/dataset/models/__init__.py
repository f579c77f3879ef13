"""The random models, one module per family.

Each module has STYLES, draw(draw, style) -> Drawn, build(style, arch) -> nn.Module, inputs(arch), target(arch) and
LOSS, and its models have the attribute `checkpointing` if they have repeated blocks.
"""
