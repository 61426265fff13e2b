"""The sets of networks that are compared, and how a network comes into one.

public       The six networks that most comparisons of compilers show.
development  Networks that may be looked at step by step while the compiler is made faster: all that
             were measured before there was a sealed set, and half of those added later.
sealed       The other half: never profiled, never inspected, only measured as a whole. They show what
             the work on the others is worth for a network that nobody looked at.
quantized    Networks with integers of 8 bits and fewer, as quantize.py writes them.
cliffs       Single nodes that a compiler is easily slow at, and short chains of them.

Which half a network of more.py belongs to is decided by the digest of its name, not by anybody:
sealed where the first byte of SHA-256 is even. A network that was looked into all the same is in OPENED,
belongs to the development set from then on, and another one takes its place.

    sets.py SET     prints the names, one a line
"""

import hashlib
import sys

PUBLIC = ["resnet50", "resnet101", "mobilenet_v2", "efficientnet_b0", "bert-base", "vit_b_16"]
QUANTIZED = [
    "resnet50.qdq", "resnet50.qdq-signed", "resnet50.qoperator", "mobilenet_v2.qdq", "bert-base.dynamic",
    "decoder.four-bits",
]

# Sealed until they were profiled: groups of 24 channels, normalizations of all channels, and heads of 36 were slow.
OPENED = ["mobilevit", "regnet_y_1_6gf", "separator"]


def is_sealed(name):
    return name not in OPENED and hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def names(which):
    if which == "public":
        return PUBLIC
    if which == "quantized":
        return QUANTIZED
    import cliffs
    import more
    import others
    import restoration

    if which == "cliffs":
        return [*cliffs.MODELS]
    sealed = [name for name in more.MODELS if is_sealed(name)]
    if which == "sealed":
        return sealed
    if which == "development":
        return [*others.MODELS, *restoration.MODELS, *(name for name in more.MODELS if name not in sealed)]
    sys.exit(f"no set called {which}: public, development, sealed, quantized or cliffs")


if __name__ == "__main__":
    print("\n".join(names(sys.argv[1])))
