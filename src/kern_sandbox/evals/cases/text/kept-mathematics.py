# Prints mathematics.
#> ∀x∈ℝ: x² ≥ 0 ∧ ∫₀¹ x dx = ½ ≠ ∞
print('\u2200x\u2208\u211d: x\xb2 \u2265 0 \u2227 \u222b\u2080\xb9 x dx = \xbd \u2260 \u221e')
