# Computes with decimals and fractions.
#> 0.30 5/6
from decimal import Decimal
from fractions import Fraction
print(Decimal("0.10") + Decimal("0.20"), Fraction(1, 2) + Fraction(1, 3))
