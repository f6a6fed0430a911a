"""All cases of both tables, with a progress bar; counts, and what went wrong."""

import json
import sys
from collections import Counter

from pool import judged
from tables import TABLES
from tqdm import tqdm

cases = [
    (t, n)
    for t, table in TABLES.items()
    for n in table.cases
    if len(sys.argv) < 2 or any(a in n for a in sys.argv[1:])
]
counts = Counter()
bad = []
allv = {}
for case, verdicts in tqdm(judged(cases), total=len(cases), file=sys.stderr):
    for asked, verdict, why in verdicts:
        counts[verdict] += 1
        if verdict != "exact":
            bad.append((case[1], asked, verdict, why))
    allv[case[1]] = verdicts
json.dump(allv, open("/tmp/verdicts.json", "w"))
print(len(cases), counts)
for b in sorted(bad, key=lambda b: (b[2], b[0])):
    print(" | ".join(b)[:260].replace("\n", " "))
