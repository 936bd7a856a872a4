"""levydiff.guidance: labels that are dropped, and extrapolation from the unconditional to the conditional noise."""

import pytest
import torch

from levydiff import DLIM, DLPM, Denoiser, LevyProcess, OneVariableLoss
from levydiff.guidance import Guided, LabelDropout
from levydiff.rng import SampleStreams

NULL = 5


class _Network(torch.nn.Module):
    """ε̂ = x·(1 + y): linear in the label, so that guidance has a closed form. Counts its calls."""

    classes = NULL

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, t, label=None):
        self.seen.append(label)
        return x * (1.0 + label.to(x.dtype))[:, None]


def _denoiser():
    return Denoiser(_Network(), LevyProcess(1.7))


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 3.0])
def test_guidance_extrapolates(scale):
    """ε̂_w = ε̂_∅ + w(ε̂_y - ε̂_∅) = x(1 + ∅ + w(y - ∅))."""
    x, label = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3])
    eps = Guided(_denoiser(), scale)(x, torch.tensor(0.5), label=label)
    expected = x * (1.0 + NULL + scale * (label - NULL))[:, None]
    assert torch.allclose(eps, expected, atol=1e-5)


def test_one_call_a_step_and_none_more_without_guidance():
    for scale, rows in ((1.0, 3), (2.0, 6)):
        denoiser = _denoiser()
        DLIM(Guided(denoiser, scale), steps=4)((3, 2), torch.Generator().manual_seed(0), label=torch.arange(3))
        assert [len(label) for label in denoiser.backbone.seen] == [rows] * 4


def test_samples_do_not_depend_on_the_batch():
    """Labels are split with the batch, and so are the doubled ones."""
    sampler = DLPM(Guided(_denoiser(), 0.1), steps=3)
    label = torch.arange(5) % 3
    whole, parts = (sampler((5, 2), torch.Generator().manual_seed(0), label=label, batch_size=size) for size in (5, 2))
    assert torch.allclose(whole, parts, rtol=1e-5)


def test_times_of_each_sample_are_doubled_too():
    class Timed(_Network):
        """ε̂ = x·(1 + y)·t."""

        def forward(self, x, t, label=None):
            return super().forward(x, t, label) * t[:, None]

    x, label = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.arange(3)
    t = torch.tensor([0.1, 0.5, 0.9])
    eps = Guided(Denoiser(Timed(), LevyProcess(1.7)), 2.0)(x, t, label=label)
    assert torch.allclose(eps, x * ((1.0 + NULL + 2.0 * (label - NULL)) * t)[:, None], atol=1e-5)


def test_the_share_of_dropped_labels():
    """A share p of n labels is dropped, within five standard deviations of the binomial law."""
    n, p = 20_000, 0.3
    denoiser = _denoiser()
    label = torch.arange(n) % NULL
    loss = LabelDropout(OneVariableLoss(), NULL, p)
    loss(denoiser, torch.randn(n, 2), SampleStreams.seeded(n, torch.Generator().manual_seed(0)), label=label)
    seen = denoiser.backbone.seen[-1]
    dropped = seen == NULL
    assert abs(float(dropped.float().mean()) - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert torch.equal(seen[~dropped], label[~dropped])


def test_which_labels_are_dropped_follows_from_the_streams():
    """The same streams drop the same labels, however the batch is split: a run resumes exactly."""
    loss = LabelDropout(OneVariableLoss(), NULL, 0.5)
    streams = SampleStreams.seeded(8, torch.Generator().manual_seed(0))
    x_0, label = torch.randn(8, 2, generator=torch.Generator().manual_seed(1)), torch.arange(8) % NULL
    whole = loss(_denoiser(), x_0, SampleStreams(streams.keys), label=label)
    halves = [
        loss(_denoiser(), x_0[rows], SampleStreams(streams.keys[rows]), label=label[rows])
        for rows in (slice(0, 4), slice(4, 8))
    ]
    assert torch.equal(whole, torch.cat(halves))


def test_without_dropout_it_is_the_loss_itself_in_law():
    loss, plain = LabelDropout(OneVariableLoss(), NULL, 0.0), OneVariableLoss()
    denoiser, label = _denoiser(), torch.zeros(4, dtype=torch.long)
    x_0, t = torch.randn(4, 2), torch.full((4,), 0.5)
    # the dropout takes a number of the generator first
    generator = torch.Generator().manual_seed(0)
    torch.rand(4, generator=generator)
    expected = plain.evaluate(denoiser, x_0, t, generator, label=label)
    assert torch.equal(loss.evaluate(denoiser, x_0, t, torch.Generator().manual_seed(0), label=label), expected)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\], got 1.5"):
        LabelDropout(OneVariableLoss(), NULL, 1.5)
    with pytest.raises(ValueError, match="scale must be finite and at least 0, got -1"):
        Guided(_denoiser(), -1.0)
    with pytest.raises(ValueError, match="null must be given for a network without a class of its own for none"):
        Guided(Denoiser(lambda x, t: x, LevyProcess(1.7)), 2.0)
    assert Guided(Denoiser(lambda x, t, label: x, LevyProcess(1.7)), 2.0, null=0).null == 0
    with pytest.raises(ValueError, match="label must be given to be guided towards, got none"):
        Guided(_denoiser(), 2.0)(torch.randn(2, 2), torch.tensor(0.5))
    with pytest.raises(ValueError, match="label must be given to LabelDropout, got none: train on labelled data"):
        LabelDropout(OneVariableLoss(), NULL)(_denoiser(), torch.randn(2, 2))
