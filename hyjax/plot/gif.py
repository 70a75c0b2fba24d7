"""GIF files of animations: few colours, and of each frame only what has changed."""

import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import matplotlib.animation
    from PIL.Image import Image

# Line drawings have few colours; the others are those of smoothed edges.
COLOURS = 24


def gif_writer(fps: float) -> "matplotlib.animation.AbstractMovieWriter":
    """A writer for `matplotlib.animation.Animation.save` that ends in `save_gif`."""
    from matplotlib.animation import AbstractMovieWriter
    from PIL import Image

    class GifWriter(AbstractMovieWriter):
        def setup(self, fig, outfile, dpi=None):
            self.fig, self.outfile, self.dpi = fig, outfile, fig.dpi if dpi is None else dpi

        def grab_frame(self, **options):
            picture = io.BytesIO()
            self.fig.savefig(picture, **{**options, "format": "rgba", "dpi": self.dpi})
            frames.append(Image.frombytes("RGBA", self.frame_size, picture.getvalue()).convert("RGB"))

        def finish(self):
            save_gif(frames, self.outfile, fps)

    frames: list[Image.Image] = []
    return GifWriter()


def save_gif(frames: "list[Image]", path, fps: float) -> None:
    """Write pictures of one size as a GIF that repeats, with one palette of few colours and without dithering, so that unchanged
    parts of a picture stay the same from frame to frame. A GIF counts time in hundredths of a second: 25 frames per second are
    exact."""
    from PIL import Image

    # The most frequent colours of frames spread over the animation: those of surfaces and lines are exact.
    sheet = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in frames[:: max(1, len(frames) // 4)][:4]])
    colours, counts = np.unique(sheet, axis=0, return_counts=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours[np.argsort(-counts, kind="stable")[:COLOURS]].tobytes())
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    few[0].save(path, save_all=True, append_images=few[1:], duration=round(100 / fps) * 10, loop=0, optimize=True)
