"""Fused kernels: operations that become one function of machine code."""
