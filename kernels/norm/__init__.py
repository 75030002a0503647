"""The norm_activation family on the GPU: compile, plan, launch, check, measure."""
