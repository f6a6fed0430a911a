"""Which operations become one function of machine code, and how that is laid out."""
