"""What Table 3 shows, in words."""

from __future__ import annotations

_MNIST = """
**What we found** (one seed, a small network, minutes of training: orders, not values; differences of a tenth mean
nothing).

*Confirmed.* Few deterministic steps: DLIM at α = 1.7 is some three times closer than DDIM and LIM-ODE at 25 steps, and
closer at 5 and 10 (the figure). DLPM is better than LIM at every α, clipped or not. Below α = 2 both are better at 1.7
than at 1.5 in 100 steps, and isotropic noise is better than independent noise of each pixel. The median of means
(DLPM_5, nine to thirteen times the cost) gains nothing at α = 1.7 by the distance, there as here; here it has the
better recall in 100 steps.

*Not confirmed, or in part.* By these features Gaussian noise under the same unsquared loss (DLIM at α = 2) is as close
as 1.7 at 25 steps, and behind at 5 and 10. But its samples are visibly noisier (the grid; precision 0.70 against
0.76), which a classifier's features hardly see. In 100 stochastic steps of DLPM α = 2 is best, where the paper has 1.7
and 1.8 ahead. Clipping helps LIM and does nothing for LIM-ODE.

*LIM at α = 2* comes out as noise: 100 steps are too few for its first step from t = 0.9946, which multiplies the scale
by 2.8 (in 400 steps by 1.2). At α = 1.7 it does so by 3.3, but there, presumably, the network has seen inputs of that
size in training, which at α = 2 it never has. The same network gave digits in 400 steps of LIM when we tried, and gives
them in 100 of DDPM.

*Ours.* Preconditioning, the self-weighted loss and second-order DLIM on times even in √t: 5 of our steps are about as
good as 25 of the paper's, at every α. With them the advantage of heavy-tailed noise is gone: by the distance Gaussian
noise is at least as good, with few steps and with many. Images are light-tailed. Of the two preconditionings the
bounded one has better precision and recall at 25 steps; the stable one has the lower distance in 100 stochastic steps.
"""

_MNIST_LT = """
Trained on a long-tailed part of MNIST, 5923 3550 2128 1276 764 458 274 164 98 59 images of the digits 0 to 9, and
compared with the balanced test set.

**What we found** (one seed). Nothing here speaks for heavy-tailed noise on rare classes, nor against it: at this
budget neither measure can tell. *Shares*: every method but DDIM makes the digits 7, 8 and 9 in 7 to 13 % of its
samples (training: 2 %), presumably since the classifier takes malformed digits for rare ones; of DDIM's noisy samples
it takes most for an 8. *Recall*: with a handful of samples of a class the balls around them reach into other classes,
and one sample more or less moves it by tenths. The Fréchet distance says little, for the training images themselves
are as far from the balanced test set as the better models. What is safe: DDIM at 25 steps is far behind all others.
"""

_CIFAR10_LT = """
A proof that the script runs, with a sample grid: a budget of minutes says nothing about photographs, and no claim is
made from it. The images are JPEG copies of CIFAR-10's, as the reference above says, and features are not Inception's.
"""

#: By data set and budget; Markdown.
FINDINGS: dict[tuple[str, str], str] = {
    ("mnist", "cpu"): _MNIST,
    ("mnist_lt", "cpu"): _MNIST_LT,
    ("cifar10_lt", "cpu"): _CIFAR10_LT,
}
