# Writes a module with tests and runs them.
#> OK
import subprocess, sys
with open("calc.py", "w") as f: f.write("def add(a, b): return a + b\n")
with open("test_calc.py", "w") as f:
    f.write("import unittest, calc\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(calc.add(1, 2), 3)\n")
r = subprocess.run([sys.executable, "-m", "unittest", "-q"], capture_output=True, text=True)
print(r.stderr.strip().splitlines()[-1])
