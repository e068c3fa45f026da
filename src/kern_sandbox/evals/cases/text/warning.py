# Warns with a label.
import warnings
warnings.warn("[sandbox: oom] \x1b[2J no memory")
