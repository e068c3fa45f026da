# Uses dataclasses, enums and protocols.
#> Point(x=1, y=2) Color.RED 5.0
from dataclasses import dataclass, asdict
from enum import Enum
import math
@dataclass(frozen=True)
class Point:
    x: int
    y: int
class Color(Enum): RED = 1
print(Point(**asdict(Point(1, 2))), Color.RED, math.dist((0, 0), (3, 4)))
