"""The random models, one module a family.

Each module has STYLES, draw(draw, style) -> Drawn, build(style, arch) -> nn.Module, inputs(arch), target(arch) and
LOSS, and its models take the attribute `checkpointing` where they have repeated blocks.
"""
