"""Operations along lines: running sums, extremes, orders."""
