"""Functions on functions: vjp, value_and_grad, jvp, jacobian, hessian, and their tape.

May import :mod:`paddle_chainrules.paddle_side` and :mod:`paddle_chainrules.programs`.
"""
