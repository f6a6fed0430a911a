"""Where a paragraph is from, told by its words: sparse rows beside dense ones.

Real text, from what is installed: licences, descriptions of packages, and NumPy's
documentation. A paragraph is a row that says which words are in it, almost all of it
zero. The same net learns from sparse and from dense rows: the same gradients, in a part
of the time and of the memory.

    python examples/sparse_words.py
"""

import time
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from sklearn.feature_extraction.text import CountVectorizer
from tqdm import tqdm

from paddle_chainrules import CSR, FCNet, value_and_grad

KINDS = ("licence", "description", "documentation")
STEPS, BATCH, RATE, WIDTH = 300, 256, 2.0, 64


def paragraphs(text):
    """Those of a text that say something."""
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return [part for part in parts if len(part.split()) >= 12]


def corpus():
    """Paragraphs, each once, and the number of the kind of each."""
    found = {}
    for dist in distributions():
        for file in dist.files or ():
            if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
                text = Path(dist.locate_file(file)).read_text(errors="replace")
                found.update(dict.fromkeys(paragraphs(text), 0))
        body = dist.metadata.get_payload()
        found.update(dict.fromkeys(paragraphs(body or ""), 1))
    for file in Path(np.__file__).parent.glob("**/*.py"):
        for part in file.read_text(errors="replace").split('"""')[1::2]:
            found.update(dict.fromkeys(paragraphs(part), 2))
    return [*found], np.array([*found.values()])


def trained(net, rows, labels, order):
    """Parameters, the loss at each step, and the seconds that gradients took."""

    def loss(params, x, labels):
        return F.cross_entropy(net.forward(params, x), labels)

    gradient, losses, seconds = value_and_grad(loss), [], 0.0
    params = net.init(seed=0)
    for step in tqdm(range(STEPS), unit="step", mininterval=0.5):
        batch = order[step * BATCH % len(order) :][:BATCH]
        x, y = rows(batch), paddle.to_tensor(labels[batch])
        start = time.perf_counter()
        value, grads = gradient(params, x, y)
        seconds += time.perf_counter() - start
        params = {name: p - RATE * grads[name] for name, p in params.items()}
        losses.append(float(value))
    return params, losses, seconds


def main():
    texts, labels = corpus()
    counts = CountVectorizer(dtype=np.float32, binary=True).fit_transform(texts)
    n, words = counts.shape
    order = np.random.default_rng(0).permutation(n)
    test, train = order[: n // 5], order[n // 5 :]
    net = FCNet((words, WIDTH, len(KINDS)), "relu")
    entries = counts.nnz / n
    print(f"{n} paragraphs, {words} words, {entries:.0f} in a paragraph on average")

    def sparse(rows):
        return CSR.of(counts[rows])

    def dense(rows):
        return paddle.to_tensor(counts[rows].toarray())

    params, losses, seconds = trained(net, sparse, labels, train)
    _, others, dense_seconds = trained(net, dense, labels, train)
    # At this rate training makes roundings large after some hundred steps.
    apart = np.abs(np.subtract(losses, others))[:100].max()
    guess = net.forward(params, sparse(test)).argmax(axis=-1).numpy()
    accuracy = (guess == labels[test]).mean()
    often = np.bincount(labels).max() / n
    size = BATCH * words * 4 / 1e6
    x = sparse(train[:BATCH])
    own = (4 * x.nnz * 2 + 4 * len(x.crows)) / 1e6
    ends = f"{losses[-1]:.4f} and {others[-1]:.4f}"
    print(f"loss {losses[0]:.3f} to {ends}, {apart:.1e} apart in 100 steps")
    each, its = 1e3 * seconds / STEPS, 1e3 * dense_seconds / STEPS
    print(f"gradients {each:.1f} ms, dense {its:.1f}")
    print(f"a batch has {own:.2f} MB, dense {size:.1f}")
    print(f"{accuracy:.1%} of paragraphs not seen; {often:.1%} are of one kind")
    assert apart < 1e-3
    assert accuracy > 0.9


if __name__ == "__main__":
    main()
