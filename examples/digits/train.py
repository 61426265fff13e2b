"""Trains a small convolutional network on scikit-learn's handwritten digits; exports it to ONNX.

    python train.py

writes digits.onnx, test-images.npz and test-labels.npz beside this file. The seed is fixed.
"""

import pathlib

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = pathlib.Path(__file__).parent
EPOCHS = 30


def network():
    """8×8 grey pixels in 0..1, axes (image, channel, row, column), to one score per digit."""

    def layer(before, after):
        return [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]

    return nn.Sequential(
        *layer(1, 32), *layer(32, 32), nn.MaxPool2d(2),
        *layer(32, 64), *layer(64, 64), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10),
    )


def shifted(images):
    """The images, each moved by up to one pixel: the same digit, and more to learn from."""
    down, right = np.random.randint(-1, 2, 2)
    return torch.roll(images, (int(down), int(right)), dims=(2, 3))


def train(model, images, labels):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    batches = (len(images) + 63) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, EPOCHS * batches)
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(shifted(images[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / batches:.4f}")


def main():
    # One thread, so that sums are always taken in the same order.
    torch.set_num_threads(1)
    torch.manual_seed(20)
    np.random.seed(20)
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    labels = data.target.astype(np.int64)
    learn_x, test_x, learn_y, test_y = train_test_split(
        images, labels, test_size=360, random_state=20, stratify=labels
    )
    model = network()
    train(model, torch.from_numpy(learn_x), torch.from_numpy(learn_y))
    model.eval()
    with torch.no_grad():
        right = model(torch.from_numpy(test_x)).argmax(1).numpy() == test_y
    print(f"test accuracy: {right.sum()} of {len(right)} = {right.mean():.4f}")
    torch.onnx.export(
        model, (torch.from_numpy(test_x),), HERE / "digits.onnx", opset_version=17, dynamo=False,
        input_names=["images"], output_names=["scores"],
        # Batch normalisations stay nodes of their own: folding them is the compiler's work.
        training=torch.onnx.TrainingMode.PRESERVE,
    )
    np.savez_compressed(HERE / "test-images.npz", images=test_x)
    np.savez_compressed(HERE / "test-labels.npz", labels=test_y)


if __name__ == "__main__":
    main()
