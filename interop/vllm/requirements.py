"""Prints what a wheel requires, without torch and its companions and extras."""

import sys
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
metadata = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in wheel.read(metadata).decode().splitlines():
    key, _, requirement = line.partition(": ")
    if key == "Requires-Dist" and "extra ==" not in requirement and not requirement.startswith(("torch==", "torchcodec", "torchaudio", "torchvision")):
        print(requirement)
