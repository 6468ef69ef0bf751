"""Compiled helpers of the equations: plain functions of scalars that kernels may call."""
