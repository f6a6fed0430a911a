"""What goes along lines: sums so far, extremes, orders."""
