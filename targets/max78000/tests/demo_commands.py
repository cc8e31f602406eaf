"""Arguments of the command lines by which the vendor's demos are generated: gen-demos-max78000.sh and gen-demos-max78002.sh of
ai8x-synthesis (2024-08), without the program's name.  What all lines of a script share stands in `SHARED`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SHARED = "--timer 0 --display-checkpoint --verbose"
UNET = "--overlap-data --mlator --no-unload --max-checklines 8192"
FACES = "--sample-input tests/sample_vggface2_facedetection.npy"


@dataclass(frozen=True)
class Demo:
    """One command line.  checkpoint, description: names of files without their endings."""

    device: str
    prefix: str
    checkpoint: str
    description: str
    options: str = ""

    def arguments(self, folder: str) -> list[str]:
        """The command line, its files below the current folder."""
        return [
            *(
                "--test-dir",
                folder,
                "--prefix",
                self.prefix,
                "--checkpoint-file",
                f"trained/{self.checkpoint}.pth.tar",
            ),
            *("--config-file", f"networks/{self.description}.yaml", "--device", self.device),
            *SHARED.split(),
            *self.options.split(),
        ]


def demos() -> Iterator[Demo]:
    """All 36."""
    for device, boost, loader in (("MAX78000", " --boost 2.5", " --new-kernel-loader"), ("MAX78002", "", "")):
        yield Demo(device, "mnist", "ai85-mnist-qat8-q", "mnist-chw-ai85", "--softmax")
        yield Demo(
            device, "mnist-riscv", "ai85-mnist-qat8-q", "mnist-chw-ai85", "--softmax --riscv --riscv-debug"
        )
        yield Demo(
            device,
            "cifar-10",
            "ai85-cifar10-qat8-q",
            "cifar10-nas",
            "--sample-input tests/sample_cifar-10.npy --softmax",
        )
        yield Demo(device, "cifar-100", "ai85-cifar100-qat8-q", "cifar100-nas", f"--softmax{boost}")
        yield Demo(
            device, "cifar-100-mixed", "ai85-cifar100-qat-mixed-q", "cifar100-simple", f"--softmax{boost}"
        )
        wide = "ai85-cifar100-simplenetwide2x-qat-mixed-q"
        yield Demo(device, "cifar-100-simplewide2x-mixed", wide, "cifar100-simplewide2x", f"--softmax{boost}")
        yield Demo(
            device,
            "cifar-100-residual",
            "ai85-cifar100-residual-qat8-q",
            "cifar100-ressimplenet",
            f"--softmax{boost}",
        )
        yield Demo(device, "faceid", "ai85-faceid-qat8-q", "faceid", "--fifo")
        for name in ("camvid", "aisegment"):
            files = f"ai85-{name}-unet-large-fakept-q", f"{name}-unet-large-fakept"
            yield Demo(device, f"{name}_unet", *files, f"{UNET}{loader}")
        yield Demo(device, "svhn_tinierssd", "ai85-svhn-tinierssd-qat8-q", "svhn-tinierssd", "--overlap-data")
    first, second = "MAX78000", "MAX78002"
    yield Demo(first, "kws20_v3", "ai85-kws20_v3-qat8-q", "kws20-v3-hwc", "--softmax")
    yield Demo(first, "kws20_nas", "ai85-kws20_nas-qat8-q", "kws20-nas-hwc", "--softmax")
    yield Demo(first, "cats-dogs", "ai85-catsdogs-qat8-q", "cats-dogs-hwc", "--fifo --softmax")
    yield Demo(
        first,
        "facedet_tinierssd",
        "ai85-facedet-tinierssd-qat8-q",
        "ai85-facedet-tinierssd",
        f"{FACES} --fifo",
    )
    kinetics = "ai85-kinetics-qat8-q", "ai85-kinetics-actiontcn", "--overlap-data --softmax --zero-sram"
    yield Demo(first, "kinetics", *kinetics[:2], f"{kinetics[2]} --no-kat")
    yield Demo(second, "kws20_v3_1", "ai87-kws20_v3-qat8-q", "ai87-kws20-v3-hwc", "--softmax")
    yield Demo(second, "kws20_v2_1", "ai87-kws20_v2-qat8-q", "ai87-kws20-v2-hwc", "--softmax")
    yield Demo(second, "cats-dogs", "ai85-catsdogs-qat8-q", "cats-dogs-hwc-no-fifo", "--softmax")
    yield Demo(
        second, "cifar-100-effnet2", "ai87-cifar100-effnet2-qat8-q", "ai87-cifar100-effnet2", "--softmax"
    )
    mobile = "ai87-cifar100-mobilenet-v2-0.75"
    yield Demo(second, "cifar-100-mobilenet-v2-0.75", f"{mobile}-qat8-q", mobile, "--softmax")
    yield Demo(second, "imagenet", "ai87-imagenet-effnet2-q", "ai87-imagenet-effnet2")
    yield Demo(second, "facedet_tinierssd", "ai87-facedet-tinierssd-qat8-q", "ai87-facedet-tinierssd", FACES)
    large = "--fifo --sample-input tests/sample_pascalvoc_256_320.npy --overwrite --no-unload"
    yield Demo(
        second,
        "pascalvoc_fpndetector",
        "ai87-pascalvoc-fpndetector-qat8-q",
        "ai87-pascalvoc-fpndetector",
        large,
    )
    yield Demo(second, "kinetics", *kinetics)
