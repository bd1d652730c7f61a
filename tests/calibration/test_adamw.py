"""AdamW takes torch's steps."""

import torch

from pipeline.calibration.adamw import AdamW


def test_its_steps_are_those_of_torch_to_the_last_bit():
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(3)]
    ours = [t.clone().requires_grad_() for t in start]
    theirs = [t.clone().requires_grad_() for t in start]
    optimizer = AdamW(ours, 0.01, 0.1)
    reference = torch.optim.AdamW(theirs, 0.01, weight_decay=0.1)
    for _ in range(20):
        x = torch.randn(8, 4)
        optimizer.step(list(torch.autograd.grad((x @ ours[0] + ours[1]).square().sum(), ours)))
        reference.zero_grad()
        (x @ theirs[0] + theirs[1]).square().sum().backward()
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
