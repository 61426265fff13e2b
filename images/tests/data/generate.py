"""Writes the images of the tests, and the pixels that Pillow decodes from them.

    pip install pillow numpy
    python generate.py

Each image is a file. `index.txt` has a line for it, with the file of the pixels that are expected: those of Pillow's
`convert("RGB")` without a head, one file for all images with the same. The picture is made of sums of sines with sharp edges across, so that chroma that is upsampled, blocks that are
cut by the border, and long runs are all there. Its sides are no multiple of a block's.
"""

import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 21, 35


def picture():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = [127 + 120 * np.sin(x / (3 + i) + i) * np.cos(y / (4 - i) - i) for i in range(3)]
    pixels = np.stack(channels, axis=-1).astype(np.uint8)
    pixels[5:12, 8:19] = [250, 10, 60]
    pixels[14:17] = [0, 90, 255]
    return pixels


def main():
    color = Image.fromarray(picture())
    grey = color.convert("L")
    mask = Image.fromarray((np.mgrid[0:HEIGHT, 0:WIDTH].sum(axis=0) * 4).astype(np.uint8))
    clear = color.copy()
    clear.putalpha(mask)
    palette = color.quantize(16)
    two = grey.point(lambda value: 255 * (value > 127)).convert("1")
    cases = {
        "plain.bmp": (color, {}),
        "palette.bmp": (palette, {}),
        "grey.bmp": (grey, {}),
        "two.bmp": (two, {}),
        "h2v2.jpg": (color, {"quality": 75, "subsampling": "4:2:0"}),
        "h2v1.jpg": (color, {"quality": 90, "subsampling": "4:2:2"}),
        "h1v1.jpg": (color, {"quality": 95, "subsampling": "4:4:4"}),
        "progressive.jpg": (color, {"quality": 60, "progressive": True}),
        "restarts.jpg": (color, {"quality": 80, "restart_marker_blocks": 2}),
        "grey.jpg": (grey, {"quality": 80}),
        "lossless.jp2": (color, {}),
        "lossless.j2k": (color, {"no_jp2": True}),
        "tiles.jp2": (color, {"tile_size": (16, 16), "num_resolutions": 3}),
        "grey.jp2": (grey, {}),
        "alpha.jp2": (clear, {}),
        "plain.png": (color, {}),
        "palette.png": (palette, {}),
        "grey.png": (grey, {}),
        "two.png": (two, {}),
        "alpha.png": (clear, {}),
        "plain.ppm": (color, {}),
        "grey.pgm": (grey, {}),
        "two.pbm": (two, {}),
        "plain.tif": (color, {}),
        "lzw.tif": (color, {"compression": "tiff_lzw"}),
        "deflate.tif": (color, {"compression": "tiff_adobe_deflate"}),
        "bits.tif": (color, {"compression": "packbits"}),
        "grey.tif": (grey, {}),
        "lossy.webp": (color, {"quality": 80}),
        "lossless.webp": (color, {"lossless": True}),
        "alpha.webp": (clear, {"lossless": True, "exact": True}),
    }
    known, lines = {}, []
    for name, (image, options) in cases.items():
        image.save(HERE / name, **options)
        with Image.open(HERE / name) as decoded:
            # Alpha is dropped, as Pillow's own conversion drops it.
            pixels = np.array(decoded.convert("RGB")).tobytes()
        expected = known.setdefault(pixels, f"{name}.rgb")
        (HERE / expected).write_bytes(pixels)
        lines.append(f"{name} {expected}\n")
    (HERE / "index.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
