r"""A diffusers pipeline that starts from heavy-tailed latents: a U-Net and a scheduler of :mod:`levydiff.diffusers`.

diffusers' own pipelines draw Gaussian latents and keep the state in the network's precision. This one asks the
scheduler for its start, and keeps the state in float64 between network calls, as the core's samplers do.

With class labels, and a network whose last class stands for "no class", classifier-free guidance extrapolates from the
unconditional to the conditional prediction (Ho & Salimans, 2022):

.. math::  \hat ε = \hat ε(x, ∅) + w\,(\hat ε(x, c) - \hat ε(x, ∅)).
"""

# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from diffusers import UNet2DModel
from diffusers.pipelines.pipeline_utils import DiffusionPipeline, ImagePipelineOutput
from torch import Tensor

from .checks import cast_finite, check_count
from .diffusers import DLIMScheduler, DLPMScheduler
from .scheduler import Generators

_OUTPUTS = ("pil", "np", "pt", "latent")


class LevyPipeline(DiffusionPipeline):
    """Images from a U-Net trained with α-stable noise.

    Arguments:
        unet: The network; ``sample_size`` and ``in_channels`` of its config give the shape of an image.
        scheduler: How to sample.

    Example:
        >>> unet = UNet2DModel(8, 1, 1, block_out_channels=(8,), norm_num_groups=4, layers_per_block=1,
        ...                    down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
        >>> pipeline = LevyPipeline(unet, DLIMScheduler(alpha=1.7))
        >>> pipeline.set_progress_bar_config(disable=True)
        >>> pipeline(2, torch.Generator().manual_seed(0), num_inference_steps=3, output_type="pt").images.shape
        torch.Size([2, 1, 8, 8])
    """

    model_cpu_offload_seq: Any = "unet"

    def __init__(self, unet: UNet2DModel, scheduler: DLPMScheduler | DLIMScheduler) -> None:
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    @torch.no_grad()
    def __call__(
        self,
        batch_size: int = 1,
        generator: Generators = None,
        num_inference_steps: int = 100,
        class_labels: int | Sequence[int] | Tensor | None = None,
        guidance_scale: float = 1.0,
        output_type: str = "pil",
        return_dict: bool = True,
    ) -> ImagePipelineOutput | tuple[Any]:
        """Draw images.

        Arguments:
            batch_size: B, how many.
            generator: One generator for the batch, a list of one for each image, or None for torch's own.
            num_inference_steps: T.
            class_labels: One class for all images, or one for each, for a network with class embeddings.
            guidance_scale: w. With w ≠ 1 the network's last class must be the one that stands for none.
            output_type: ``"pil"``, ``"np"`` (B, H, W, C) or ``"pt"`` (B, C, H, W): images in [0, 1], clipped; or
                ``"latent"``: the samples as they are, about [-1, 1], not clipped.
            return_dict: Return an ``ImagePipelineOutput`` (True), or a tuple of one.
        """
        if output_type not in _OUTPUTS:
            raise ValueError(f"output_type must be one of {', '.join(_OUTPUTS)}, got {output_type!r}")
        device = self._execution_device
        labels = self._labels(class_labels, check_count("batch_size", batch_size), guidance_scale)
        self.scheduler.set_timesteps(num_inference_steps, device)
        x = self.scheduler.init_latents((batch_size, *self._image_shape()), generator, device)
        for n in self.progress_bar(self.scheduler.timesteps):
            output = self._predict(x.to(self.unet.dtype), n, labels, guidance_scale)
            x = self.scheduler.step(output, n, x).prev_sample
        self.maybe_free_model_hooks()
        images = self._present(cast_finite(x, self.unet.dtype), output_type)
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def _present(self, x: Tensor, output_type: str) -> Any:
        if output_type == "latent":
            return x
        images = (x / 2 + 0.5).clamp(0, 1)
        if output_type == "pt":
            return images
        arrays = images.float().cpu().permute(0, 2, 3, 1).numpy()
        return self.numpy_to_pil(arrays) if output_type == "pil" else arrays

    def _image_shape(self) -> tuple[int, ...]:
        size = self.unet.config.sample_size
        if size is None:
            raise ValueError("unet.config.sample_size must be the size of the images, got None")
        return (self.unet.config.in_channels, *((size, size) if isinstance(size, int) else size))

    def _labels(self, labels: int | Sequence[int] | Tensor | None, count: int, guidance_scale: float) -> Tensor | None:
        """The classes of the images, shape (B,); with guidance followed by B times the class of none, shape (2B,)."""
        if labels is None:
            if guidance_scale != 1:
                raise ValueError(f"class_labels must be given with a guidance_scale other than 1, got {guidance_scale}")
            return None
        chosen = torch.as_tensor(labels, dtype=torch.long, device=self._execution_device).flatten()
        if len(chosen) not in (1, count):
            raise ValueError(f"class_labels must be one class, or one for each of {count} images, got {len(chosen)}")
        chosen = chosen.expand(count)
        if guidance_scale == 1:
            return chosen
        classes = self.unet.config.num_class_embeds
        if classes is None:
            raise ValueError("unet.config.num_class_embeds must count the classes for guidance, got None")
        return torch.cat([chosen, torch.full_like(chosen, classes - 1)])

    def _predict(self, x: Tensor, n: Tensor, labels: Tensor | None, guidance_scale: float) -> Tensor:
        """The network's output, guided if asked for."""
        if guidance_scale == 1:
            out: Tensor = self.unet(x, n, class_labels=labels).sample
            return out
        given, none = self.unet(torch.cat([x, x]), n, class_labels=labels).sample.chunk(2)
        return torch.lerp(none, given, guidance_scale)
