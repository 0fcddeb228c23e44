"""Causal language models and their tokenizers: loading, tiny ones for a CPU, adapters, attention
and fused kernels.
"""
