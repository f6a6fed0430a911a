"""Derivatives of functions: vjp, jvp, grad, Jacobians, Hessians."""
