"""Steps by curvature: L-BFGS, least squares, natural gradients."""
